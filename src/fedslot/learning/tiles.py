"""Layers over tiles of samples, compiled: small layers run as fast as BLAS runs large ones.

A tile is `LANES` samples side by side: an array holds each feature for all of them, then the next feature, just as they
come to lie in the processor's registers. A layer multiplies registers of samples by one weight at a time, so its
shape does not matter, and features that are zero in a whole tile are left out.

What a network makes of a tile lies in one flat workspace, from its inputs to its scores. Places in it, and sizes, count
floats. All arrays are flat, but for results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from fedslot.compiling import compiled, inlined, kept
from fedslot.learning.registers import LANES, REGISTER, Writer, innermost

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Records = Any  # stages, of type `stages.RECORD`

MOST = 6  # outputs at a time: their sums take twelve of sixteen registers
TILES = 8  # that share the weights of a first layer while these are in the processor's cache
MODELS = 48  # whose weights stay in the cache

ZERO, ONE = np.float32(0), np.float32(1)


def _layer(outputs: int) -> Callable[..., None]:
    """The innermost loop of `product`, for so many outputs at a time."""

    @innermost
    def kernel(  # type: ignore[no-untyped-def]
        typing, out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival
    ):
        at, flag = types.intp, types.boolean
        signature = types.void(out, at, at, weights, at, at, inputs, at, taps, places, at, at, flag, flag)

        def generate(context: Any, build: Any, signature: Any, values: Any) -> Any:
            write = Writer(context, build, signature, values)
            out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival = write.values
            pairs = [(output, lane) for output in range(outputs) for lane in range(0, LANES, REGISTER)]
            targets = [write.move(out, to, build.mul(apart, write.count(output)), lane) for output, lane in pairs]
            biases = write.move(weights, row, build.mul(build.sub(length, write.count(1)), write.count(outputs)))
            filled = [write.fill(biases, output) for output in range(outputs)]
            sums = write.sums([filled[output] for output, _ in pairs])
            with write.turns(begin, end) as turn:
                tap, here = build.load(write.move(taps, turn)), build.load(write.move(places, turn))
                factors = write.move(weights, row, build.mul(tap, write.count(outputs)))
                feature = write.move(inputs, place, here)
                found = {lane: write.load(feature, lane) for lane in range(0, LANES, REGISTER)}
                filled = [write.fill(factors, output) for output in range(outputs)]
                for total, (output, lane) in zip(sums, pairs, strict=True):
                    write.add_product(total, filled[output], found[lane])
            for total in sums:
                value = build.load(total)
                build.store(write.where_positive(value, value, relu), total)
            with build.if_then(rival):
                for total, target in zip(sums, targets, strict=True):
                    build.store(write.higher(write.load(target), build.load(total)), total)
            for total, target in zip(sums, targets, strict=True):
                write.store(build.load(total), target)
            return context.get_dummy_value()

        return signature, generate

    return kernel


_one, _two, _three, _four, _five, _six = (_layer(outputs) for outputs in range(1, MOST + 1))


def _slopes(outputs: int, taps: int) -> Callable[..., None]:
    """The innermost loop of `_add_slopes`, for so many outputs and taps at a time."""

    @innermost
    def kernel(typing, sums, to, length, steep, place, apart, inputs, at, places, first, registers):  # type: ignore[no-untyped-def]
        index = types.intp
        signature = types.void(sums, index, index, steep, index, index, inputs, index, places, index, index)

        def generate(context: Any, build: Any, signature: Any, values: Any) -> Any:
            write = Writer(context, build, signature, values)
            sums, to, length, steep, place, apart, inputs, at, places, first, registers = write.values
            pairs = [(output, tap) for output in range(outputs) for tap in range(taps)]
            size = write.count(REGISTER)
            targets = [
                write.move(sums, build.mul(build.add(to, build.mul(length, write.count(output))), size), tap * REGISTER)
                for output, tap in pairs
            ]
            totals = write.sums([write.load(target) for target in targets])
            rows = [write.move(steep, place, build.mul(apart, write.count(output))) for output in range(outputs)]
            found = [write.move(inputs, at, build.load(write.move(places, first, tap))) for tap in range(taps)]
            with write.turns(write.count(0), registers) as turn:
                here = build.mul(turn, size)
                values = [write.load(pointer, here) for pointer in found]
                slopes = [write.load(pointer, here) for pointer in rows]
                for total, (output, tap) in zip(totals, pairs, strict=True):
                    write.add_product(total, slopes[output], values[tap])
            for total, target in zip(totals, targets, strict=True):
                write.store(build.load(total), target)
            return context.get_dummy_value()

        return signature, generate

    return kernel


_four_by_three, _one_by_one = _slopes(4, 3), _slopes(1, 1)


@innermost
def _maxima(typing, steep, here, line, made, to, relu):  # type: ignore[no-untyped-def]
    """The highest of 2x2 places, whose lines are so far apart, and ReLU."""
    signature = types.void(steep, types.intp, types.intp, made, types.intp, types.boolean)

    def generate(context: Any, build: Any, signature: Any, values: Any) -> Any:
        write = Writer(context, build, signature, values)
        steep, here, line, made, to, relu = write.values
        for lane in range(0, LANES, REGISTER):
            upper = [write.load(steep, here, lane + place) for place in (0, LANES)]
            lower = [write.load(steep, here, line, lane + place) for place in (0, LANES)]
            top = write.higher(write.higher(*upper), write.higher(*lower))
            write.store(write.where_positive(top, top, relu), made, to, lane)
        return context.get_dummy_value()

    return signature, generate


@innermost
def _slopes_of_maxima(typing, made, slopes, to, relu, steep, here, line):  # type: ignore[no-untyped-def]
    """The slope goes to where the maximum is, to the first one of equal values, in place of the values there."""
    signature = types.void(made, slopes, types.intp, types.boolean, steep, types.intp, types.intp)

    def generate(context: Any, build: Any, signature: Any, values: Any) -> Any:
        write = Writer(context, build, signature, values)
        made, slopes, to, relu, steep, here, line = write.values
        for lane in range(0, LANES, REGISTER):
            top = write.load(made, to, lane)
            left = write.where_positive(top, write.load(slopes, to, lane), relu)
            for place in [(lane,), (LANES + lane,), (line, lane), (line, LANES + lane)]:
                here_is_it = build.fcmp_ordered("==", write.load(steep, here, *place), top)
                write.store(build.select(here_is_it, left, write.zero), steep, here, *place)
                left = build.select(here_is_it, write.zero, left)
        return context.get_dummy_value()

    return signature, generate


@compiled
def edge(outputs: int, group: int) -> int:
    """Where a group of outputs begins: they are computed `MOST` or fewer at a time, as evenly as can be."""
    return outputs * group // ((outputs + MOST - 1) // MOST)


@compiled
def product(
    out: Floats,
    to: int,
    apart: int,
    weights: Floats,
    row: int,
    length: int,
    outputs: int,
    inputs: Floats,
    place: int,
    taps: Integers,
    places: Integers,
    begin: int,
    end: int,
    relu: bool,
    rival: bool,
) -> None:
    """A layer for one tile: out_j = bias_j + the sum of weight_j[taps[i]] * inputs[places[i]] over i from begin to end.

    out, to, apart: where outputs go: output j begins at to + j * apart.
    weights, row, length: where the weights begin, group by group of outputs (see `edge`). A group has all first
        weights, then all second ones, and so on, so many, of which the last are the biases.
    inputs, place: what the layer takes in; `places` count from `place` on.
    relu: whether negative outputs become 0.
    rival: whether what is there already stays where it is higher.
    """
    for group in range((outputs + MOST - 1) // MOST):
        size = edge(outputs, group + 1) - edge(outputs, group)
        if size == 6:
            _six(out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival)
        elif size == 5:
            _five(out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival)
        elif size == 4:
            _four(out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival)
        elif size == 3:
            _three(out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival)
        elif size == 2:
            _two(out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival)
        else:
            _one(out, to, apart, weights, row, length, inputs, place, taps, places, begin, end, relu, rival)
        to, row = to + size * apart, row + size * length


@kept
def first_layers(
    weights: Floats, models: int, units: int, x: Floats, taps: Integers, places: Integers, starts: Integers
) -> Floats:
    """What the first layers of several perceptrons make of some tiles, before ReLU: (tiles, units, models, LANES).

    weights: (models, units * (features + 1)), in the order of `product`.
    x, taps, places, starts: samples by those features that are not zero in a tile; tile t has those from starts[t] on.
    """
    tiles, length = len(starts) - 1, len(weights) // (models * units)
    out = np.empty(tiles * units * models * LANES, np.float32)
    for some in range(0, tiles, TILES):
        for model in range(models):
            for group in range((units + MOST - 1) // MOST):
                unit, last = edge(units, group), edge(units, group + 1)
                for tile in range(some, min(some + TILES, tiles)):
                    to, row = ((tile * units + unit) * models + model) * LANES, (model * units + unit) * length
                    product(
                        out, to, models * LANES, weights, row, length, last - unit,
                        x, 0, taps, places, starts[tile], starts[tile + 1], False, False,
                    )  # fmt: skip
    return out


@kept
def measure(
    stages: Records,
    taps: Integers,
    places: Integers,
    room: int,
    inputs: Floats,
    labels: Integers,
    models: int,
    mix: NDArray[np.float32],
    parameters: Floats,
) -> NDArray[np.float64]:
    """Losses and hits (C, 2) of C averaged networks, summed over some tiles.

    inputs: of these tiles; or what the first layers of several models make of them, to be averaged.
    labels: (tiles, LANES), -1 where there is no sample.
    models: so many, or 0 if inputs are what they are.
    mix: (C, R), the weights of the averages.
    parameters: (C, P), those of all stages; or of those behind the first.
    """
    tiles, averages, layer, last = len(labels) // LANES, len(mix), stages[0], stages[-1]
    size, length = len(inputs) // tiles, len(parameters) // averages
    behind, units = (1, layer.outputs) if models else (0, 0)
    skipped = stages[1].row if models and len(stages) > 1 else 0  # parameters begin behind the first stage
    made = np.zeros(room + MOST * units * LANES, np.float32)  # inputs, what stages make, averages of first layers
    shares, members = np.empty(MOST * (models + 1), np.float32), np.empty((2, models), np.int64)
    spare, found = np.empty(3 * LANES, np.float32), np.zeros((averages, 2))
    for some in range(0, averages, MODELS):
        for tile in range(tiles):
            if not models:
                made[:size] = inputs[tile * size : (tile + 1) * size]
            for first in range(some, min(some + MODELS, averages), MOST):
                group = min(MOST, some + MODELS - first, averages - first)
                _average(
                    inputs, tile * size, mix, first, group, models, units, layer.relu > 0, made, room, shares, members
                )
                for average in range(first, first + group):
                    at = room + (average - first) * units * LANES if models else 0
                    for stage in stages[behind:]:
                        _run(stage, taps, places, parameters, average * length - skipped + stage.row, made, at, made)
                        at = stage.outside
                    loss, hits = _judge(made, at, last.outputs, labels, tile * LANES, spare)
                    found[average, 0] += loss
                    found[average, 1] += hits
    return found


@compiled
def _average(
    inputs: Floats,
    place: int,
    mix: NDArray[np.float32],
    first: int,
    group: int,
    models: int,
    units: int,
    relu: bool,
    made: Floats,
    to: int,
    shares: Floats,
    members: NDArray[np.int64],
) -> None:
    """Average a tile's units (units, models, LANES) of several models, by a group of rows of `mix`."""
    count = 0  # of models that take part in any of the averages
    for model in range(models):
        total = ZERO
        for number in range(group):
            shares[count * group + number] = mix[first + number, model]
            total += abs(mix[first + number, model])
        members[0, count], members[1, count] = count, model * LANES
        count += total != 0
    shares[count * group :] = ZERO  # biases
    for unit in range(units):
        product(
            made, to + unit * LANES, units * LANES, shares, 0, count + 1, group,
            inputs, place + unit * models * LANES, members[0], members[1], 0, count, relu, False,
        )  # fmt: skip


@compiled
def _run(
    stage: Records, taps: Integers, places: Integers, weights: Floats, row: int, inputs: Floats, at: int, out: Floats
) -> None:
    """Run a tile through a stage, whose inputs begin at inputs[at] and whose weights begin at weights[row]."""
    outputs, length, begin, end = stage.outputs, stage.taps + 1, stage.begin, stage.begin + stage.taps
    pool, relu, channel = stage.pool, stage.relu > 0, stage.channel
    for y in range(pool * stage.height):
        for x in range(pool * stage.width):
            place = at + y * stage.across + x * LANES
            to = stage.outside + stage.inset + y // pool * stage.line + x // pool * LANES
            rival = y % pool + x % pool > 0
            product(
                out, to, channel, weights, row, length, outputs, inputs, place, taps, places, begin, end, relu, rival
            )


@compiled
def _judge(made: Floats, at: int, classes: int, labels: Integers, first: int, spare: Floats) -> tuple[float, int]:
    """Cross-entropy of the scores of a tile, from made[at] on, and how many of them are right.

    labels: from `first` on, -1 where there is no sample.
    """
    tops, sums, which = spare[:LANES], spare[LANES : 2 * LANES], spare[2 * LANES : 3 * LANES]
    for lane in range(LANES):
        tops[lane], sums[lane], which[lane] = made[at + lane], ZERO, ZERO
    for score in range(1, classes):
        for lane in range(LANES):
            value, top = made[at + score * LANES + lane], tops[lane]
            higher = value > top or (value != value and top == top)
            tops[lane] = value if higher else top
            which[lane] = np.float32(score) if higher else which[lane]
    for score in range(classes):
        for lane in range(LANES):
            sums[lane] += _exp(made[at + score * LANES + lane] - tops[lane])
    all_sums, others, hits = 1.0, 0.0, 0
    for lane in range(LANES):
        label = labels[first + lane]
        if label >= 0:
            all_sums *= sums[lane]  # one logarithm for all of them
            others += tops[lane] - made[at + label * LANES + lane]
            hits += which[lane] == label
    return np.log(all_sums) + others, hits


@kept
def descend(
    parameters: Floats,
    stages: Records,
    wide: Records,
    turned: Records,
    taps: Integers,
    places: Integers,
    sources: Integers,
    rooms: Integers,
    x: NDArray[np.float32],
    y: Integers,
    order: Integers,
    cuts: Integers,
    lr: np.float32,
    momentum: np.float32,
) -> None:
    """Train a network by SGD with momentum, in place.

    A tile goes through the stages, which leave values before maxima and ReLU in `steep`, and thereafter in `made`.
    On the way back, `slopes` has the loss's slopes by the latter; those by the former take the place of the values.

    wide: the stages up to their maxima and ReLU; they make what these take in.
    turned: the stages backwards, from the slopes of the loss by what they make to the slopes by what they take in.
    sources: which parameters are the weights of the turned stages, or -1 for 0.
    rooms: how much room it takes what they make, up to the maxima, and thereafter.
    x, y: (n, features) and (n,), the samples, as images with zeros around them.
    order: (epochs, n) samples in the order in which they come.
    cuts: (minibatches + 1,) places where minibatches of an epoch begin and end.
    """
    room, last = rooms[1], stages[-1]
    made, slopes = np.zeros(room, np.float32), np.zeros(room, np.float32)
    steep, spare = np.zeros(rooms[0], np.float32), np.empty(2 * LANES, np.float32)
    sums, velocity = np.empty(len(parameters) * REGISTER, np.float32), np.zeros(len(parameters), np.float32)
    backwards, labels = np.empty(len(sources), np.float32), np.empty(LANES, np.int64)
    for epoch in range(len(order)):
        for part in range(len(cuts) - 1):
            rows = order[epoch, cuts[part] : cuts[part + 1]]
            sums[:] = ZERO
            for place in range(len(sources)):
                backwards[place] = parameters[sources[place]] if sources[place] >= 0 else ZERO
            for first in range(0, len(rows), LANES):
                _take(x, y, rows, first, made, labels)
                for number in range(len(stages)):
                    stage, before = stages[number], wide[number]
                    _run(before, taps, places, parameters, stage.row, made, stage.at, steep)
                    _settle(stage, before, steep, made, slopes, False)
                _slope_of_loss(made, last.outside, last.outputs, labels, len(rows), slopes, spare)
                for number in range(len(stages) - 1, -1, -1):
                    stage, before, back = stages[number], wide[number], turned[number]
                    _settle(stage, before, steep, made, slopes, True)
                    _add_slopes(before, places, steep, made, stage.at, sums)
                    if number:
                        _run(back, taps, places, backwards, back.row, steep, back.at, slopes)
            _step(stages, parameters, velocity, sums, lr, momentum)


@compiled
def _take(x: NDArray[np.float32], y: Integers, rows: Integers, first: int, made: Floats, labels: Integers) -> None:
    """Lay up to LANES samples side by side; lanes without one repeat the first and have no label."""
    count, features = min(LANES, len(rows) - first), x.shape[1]
    for some in range(0, features, LANES):  # what is written stays within the cache
        end = min(some + LANES, features)
        for lane in range(LANES):
            row = rows[first + lane] if lane < count else rows[first]
            for feature in range(some, end):
                made[feature * LANES + lane] = x[row, feature]
    for lane in range(LANES):
        labels[lane] = y[rows[first + lane]] if lane < count else -1


@compiled
def _settle(stage: Records, wide: Records, steep: Floats, made: Floats, slopes: Floats, back: bool) -> None:
    """Maxima and ReLU; or back again, the slopes before them in place of the values there."""
    relu, pool, line = stage.relu > 0, stage.pool, wide.line
    for output in range(stage.outputs):
        for y in range(stage.height):
            here = wide.outside + wide.inset + output * wide.channel + pool * y * line
            to = stage.outside + stage.inset + output * stage.channel + y * stage.line
            for _ in range(stage.width):
                if pool == 2 and back:
                    _slopes_of_maxima(made, slopes, to, relu, steep, here, line)
                elif pool == 2:
                    _maxima(steep, here, line, made, to, relu)
                elif back:
                    for lane in range(LANES):
                        steep[here + lane] = ZERO if relu and made[to + lane] <= 0 else slopes[to + lane]
                else:
                    for lane in range(LANES):
                        value = steep[here + lane]
                        made[to + lane] = ZERO if relu and value <= 0 else value
                here, to = here + pool * LANES, to + LANES


@compiled
def _add_slopes(stage: Records, places: Integers, steep: Floats, inputs: Floats, at: int, sums: Floats) -> None:
    """Add a tile's slopes by weights and biases to the sums (P, REGISTER), output by output."""
    outputs, taps, length, channel = stage.outputs, stage.taps, stage.taps + 1, stage.channel
    registers = stage.width * LANES // REGISTER
    for y in range(stage.height):
        place, here = stage.outside + stage.inset + y * stage.line, at + y * stage.across
        for tap in range(0, taps, 3):
            for output in range(0, outputs, 4):
                to, some = stage.row + output * length + tap, place + output * channel
                columns, rows = min(3, taps - tap), min(4, outputs - output)
                if columns == 3 and rows == 4:
                    _four_by_three(
                        sums, to, length, steep, some, channel, inputs, here, places, stage.begin + tap, registers
                    )
                    continue
                for row in range(rows):
                    for column in range(columns):
                        _one_by_one(
                            sums, to + row * length + column, length, steep, some + row * channel, channel,
                            inputs, here, places, stage.begin + tap + column, registers,
                        )  # fmt: skip
        for output in range(outputs):
            bias = (stage.row + output * length + taps) * REGISTER
            for register in range(registers):
                for lane in range(REGISTER):
                    sums[bias + lane] += steep[place + output * channel + register * REGISTER + lane]


@compiled
def _slope_of_loss(
    made: Floats, at: int, classes: int, labels: Integers, size: int, slopes: Floats, spare: Floats
) -> None:
    """The mean cross-entropy's slope by the scores: softmax - one-hot, by the size of the minibatch."""
    tops, sums, share = spare[:LANES], spare[LANES:], ONE / np.float32(size)
    for lane in range(LANES):
        tops[lane], sums[lane] = made[at + lane], ZERO
    for score in range(1, classes):
        for lane in range(LANES):
            value = made[at + score * LANES + lane]
            tops[lane] = value if value > tops[lane] or value != value else tops[lane]
    for score in range(classes):
        for lane in range(LANES):
            slope = _exp(made[at + score * LANES + lane] - tops[lane])
            slopes[at + score * LANES + lane] = slope
            sums[lane] += slope
    for lane in range(LANES):
        sums[lane] = share / sums[lane] if labels[lane] >= 0 else ZERO
        sums[lane] += tops[lane] * ZERO  # what is not a number shall not get lost
    for score in range(classes):
        for lane in range(LANES):
            slopes[at + score * LANES + lane] *= sums[lane]
    for lane in range(LANES):
        if labels[lane] >= 0:
            slopes[at + labels[lane] * LANES + lane] -= share


@compiled
def _step(
    stages: Records, parameters: Floats, velocity: Floats, sums: Floats, lr: np.float32, momentum: np.float32
) -> None:
    for stage in stages:
        outputs, length = stage.outputs, stage.taps + 1
        for group in range((outputs + MOST - 1) // MOST):
            first, end = edge(outputs, group), edge(outputs, group + 1)
            for output in range(first, end):
                for tap in range(length):
                    place = stage.row + first * length + tap * (end - first) + output - first
                    slope = ZERO
                    for lane in range(REGISTER):
                        slope += sums[(stage.row + output * length + tap) * REGISTER + lane]
                    velocity[place] = momentum * velocity[place] + slope
                    parameters[place] -= lr * velocity[place]


@inlined
def _exp(x: np.float32) -> np.float32:
    """exp(x) for x <= 0, by steps that registers can take; 1e-38 below -87.

    As 2^n exp(r) with |r| <= log(2) / 2, where the series up to the power 7 is as exact as float32.
    """
    x = x if x > np.float32(-87) else np.float32(-87)
    n = np.floor(x * np.float32(1 / np.log(2)) + np.float32(0.5))
    r, series = x - n * np.float32(np.log(2)), ONE
    for power in range(7, 0, -1):
        series = series * (r * np.float32(1 / power)) + ONE
    two: np.float32 = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)  # 2^n by its bits
    return np.float32(series * two)
