"""SGD of one perceptron as loops that Numba compiles around BLAS products; they do not hold Python's lock.

Parameters are one flat vector: for each layer its weights (outputs, inputs), then its biases, as PyTorch orders them.
So are gradients and velocities. The activations of a minibatch of b samples share a flat workspace: the inputs
(b, widths[0]), then the outputs of each layer; a second workspace of the same layout holds their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 - Numba's np.dot calls it; loaded early, its threads can be limited
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Hyper = tuple[np.float32, np.float32, np.float32]
Function = TypeVar("Function", bound=Callable[..., Any])

ZERO, ONE = np.float32(0), np.float32(1)


def _compiled(function: Function) -> Function:
    """Compile at the first call, and cache the machine code on disk if some folder can be written."""
    try:
        return cast(Function, numba.njit(function, cache=True, nogil=True, error_model="numpy"))
    except RuntimeError:  # no such folder
        return cast(Function, numba.njit(function, nogil=True, error_model="numpy"))


@_compiled
def train(
    parameters: Floats, widths: Integers, x: Floats, y: Integers, orders: Integers, edges: Integers, hyper: Hyper
) -> None:
    """Train by SGD with momentum, in place.

    widths: (layers + 1,) number of features, then of the outputs of each layer.
    x, y: (n, features) and (n,), the samples.
    orders: (epochs, n) order of the samples in each epoch.
    edges: (minibatches + 1,) positions at which an epoch is cut into minibatches.
    hyper: learning rate, momentum, and FedProx's mu.
    """
    anchor, velocity = parameters.copy(), np.zeros_like(parameters)
    gradient = np.empty_like(parameters)
    activations, deltas = _workspaces(widths, edges)
    for order in orders:
        for part in range(len(edges) - 1):
            batch = order[edges[part] : edges[part + 1]]
            _matrix(activations, 0, len(batch), widths[0])[:] = x[batch]
            _gradient(parameters, gradient, widths, activations, deltas, y[batch], False)
            _step(parameters, velocity, gradient, anchor, hyper)


@_compiled
def train_dual(
    parameters: Floats,
    widths: Integers,
    x: Floats,
    y: Integers,
    gram: Floats,
    orders: Integers,
    edges: Integers,
    hyper: Hyper,
) -> None:
    """Train like `train`, up to rounding, with the first layer in dual form.

    gram: (n, n) inner products of the samples, each with a 1 appended for the bias.

    Gradient steps move the first layer only within the span of the samples: W = W0 - lr * sum_j a_j x_j^T. So its
    output for sample i is W0 x_i - lr * sum_j gram[i, j] a_j: a step costs products with n columns, not with as many
    as there are features, and the gradient by a needs no product at all.
    """
    lr, momentum, proximal = hyper
    samples, features = x.shape
    hidden, rest_widths = widths[1], widths[1:]
    first, rest = parameters[: hidden * (features + 1)], parameters[hidden * (features + 1) :]
    initial_outputs = np.empty((samples, hidden), np.float32)
    np.dot(x, _matrix(first, 0, hidden, features).T, initial_outputs)
    _add_bias(initial_outputs, first[hidden * features :], False)

    anchor, velocity, gradient = rest.copy(), np.zeros_like(rest), np.empty_like(rest)
    activations, deltas = _workspaces(rest_widths, edges)
    a, a_velocity = np.zeros((samples, hidden), np.float32), np.zeros((samples, hidden), np.float32)
    for order in orders:
        for part in range(len(edges) - 1):
            batch = order[edges[part] : edges[part + 1]]
            inputs = _matrix(activations, 0, len(batch), hidden)
            np.dot(gram[batch], a, inputs)
            for i in range(len(batch)):
                for j in range(hidden):
                    value = initial_outputs[batch[i], j] - lr * inputs[i, j]
                    inputs[i, j] = ZERO if value <= 0 else value  # NaN propagates
            _gradient(rest, gradient, rest_widths, activations, deltas, y[batch], True)
            _step(rest, velocity, gradient, anchor, hyper)
            for i in range(samples):
                for j in range(hidden):
                    a_velocity[i, j] = momentum * a_velocity[i, j] - proximal * lr * a[i, j]  # W - W0 is -lr * a here
                    a[i, j] += a_velocity[i, j]
            delta = _matrix(deltas, 0, len(batch), hidden)
            for i in range(len(batch)):
                for j in range(hidden):
                    a_velocity[batch[i], j] += delta[i, j]
                    a[batch[i], j] += delta[i, j]

    total = np.empty_like(first)
    np.dot(a.T, x, _matrix(total, 0, hidden, features))
    _sum_samples(a, total[hidden * features :])
    for i in range(len(first)):
        first[i] -= lr * total[i]


@_compiled
def _gradient(
    parameters: Floats,
    gradient: Floats,
    widths: Integers,
    activations: Floats,
    deltas: Floats,
    labels: Integers,
    to_inputs: bool,
) -> None:
    """Forward and backward pass of a minibatch, whose inputs are in `activations`; fills `gradient` and `deltas`.

    to_inputs: whether the inputs come out of a ReLU, and the gradient before that is wanted too.
    """
    size, layers = len(labels), len(widths) - 1
    first, offset = 0, 0  # of the layer's parameters, and of its inputs in the workspace
    for layer in range(layers):
        n, m = widths[layer], widths[layer + 1]
        outputs = _matrix(activations, offset + size * n, size, m)
        np.dot(_matrix(activations, offset, size, n), _matrix(parameters, first, m, n).T, outputs)
        _add_bias(outputs, parameters[first + m * n : first + m * (n + 1)], layer < layers - 1)
        first, offset = first + m * (n + 1), offset + size * n
    classes = widths[layers]
    _softmax_gradient(_matrix(activations, offset, size, classes), labels, _matrix(deltas, offset, size, classes))
    for layer in range(layers - 1, -1, -1):
        n, m = widths[layer], widths[layer + 1]
        first, offset = first - m * (n + 1), offset - size * n
        inputs, delta = _matrix(activations, offset, size, n), _matrix(deltas, offset + size * n, size, m)
        np.dot(delta.T, inputs, _matrix(gradient, first, m, n))
        _sum_samples(delta, gradient[first + m * n : first + m * (n + 1)])
        if layer > 0 or to_inputs:
            before = _matrix(deltas, offset, size, n)
            np.dot(delta, _matrix(parameters, first, m, n), before)
            for i in range(size):
                for j in range(n):
                    before[i, j] *= ZERO if inputs[i, j] <= 0 else ONE


@_compiled
def _softmax_gradient(logits: Floats, labels: Integers, delta: Floats) -> None:
    """Gradient of the mean cross-entropy by the logits: (softmax - one-hot) / size of the minibatch."""
    size, classes = logits.shape
    share = ONE / np.float32(size)
    for i in range(size):
        top, total = logits[i].max(), ZERO
        for j in range(classes):
            delta[i, j] = np.exp(logits[i, j] - top)
            total += delta[i, j]
        for j in range(classes):
            delta[i, j] *= share / total
        delta[i, labels[i]] -= share


@_compiled
def _step(parameters: Floats, velocity: Floats, gradient: Floats, anchor: Floats, hyper: Hyper) -> None:
    lr, momentum, proximal = hyper
    for i in range(len(parameters)):
        velocity[i] = momentum * velocity[i] + gradient[i] + proximal * (parameters[i] - anchor[i])
        parameters[i] -= lr * velocity[i]


@_compiled
def _workspaces(widths: Integers, edges: Integers) -> tuple[Floats, Floats]:
    """Workspaces for the activations of the largest minibatch, and for their gradients."""
    size = np.diff(edges).max() * widths.sum()
    return np.empty(size, np.float32), np.empty(size, np.float32)


@_compiled
def _matrix(flat: Floats, first: int, rows: int, columns: int) -> Floats:
    """Part of a flat array as a matrix."""
    return flat[first : first + rows * columns].reshape(rows, columns)


@_compiled
def _add_bias(outputs: Floats, bias: Floats, relu: bool) -> None:
    for i in range(outputs.shape[0]):
        for j in range(outputs.shape[1]):
            value = outputs[i, j] + bias[j]
            outputs[i, j] = ZERO if relu and value <= 0 else value  # NaN propagates


@_compiled
def _sum_samples(table: Floats, out: Floats) -> None:
    out[:] = ZERO
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            out[j] += table[i, j]
