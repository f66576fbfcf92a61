"""A device: the mod draws its slot, and the device trains only if it got one."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedslot.deployment.flower import slot_access

app = ClientApp(mods=[slot_access])


@app.train()
def train(message: Message, context: Context) -> Message:
    # loaded here, so that a device that is barred answers at once
    from slots.training import local_update

    round = int(message.content["config"]["server-round"]) - 1
    ue = int(context.node_config["partition-id"])
    update, examples = local_update(message.content["arrays"], ue, round, context.run_config)
    content = {"arrays": update, "metrics": MetricRecord({"num-examples": examples})}
    return Message(RecordDict(content), reply_to=message)
