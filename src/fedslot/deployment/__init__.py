"""The scheduler on real devices, over any transport.

    frame.py        an announced frame, and the turn of each UE in it
    announcement.py a frame as it is broadcast to devices that speak of their own accord
    pace.py         what a device trains and holds where no frame waits for it
    encoding.py     updates and models as bytes, by the announced compression
    timing.py       when the slots of a frame are
    screening.py    the checks of a UE's slots and update; nothing from the network is trusted
    reception.py    all replies to a frame, screened
    faults.py       faults.csv: whose update was lost, and why
    presence.py     which UEs are here, for whoever looks on
    metrics.py      Prometheus metrics and the state of health, over HTTP
    changes.py      changes of a scenario while its training runs
    roster.py       which device stands for which UE
    server.py       ParameterServer: from an announced frame to the next global model, recorded and saved

A transport announces the frames of a `ParameterServer` to its devices, wraps what they answer as `reception.Reply`, and
closes the frame; `flower/` and `mqtt/` are two. Nothing here imports a transport.
"""
