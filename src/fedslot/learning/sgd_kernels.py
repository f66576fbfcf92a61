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
    output for sample i is W0 x_i - lr * sum_j gram[i, j] a_j: a step costs products with n columns instead of one
    column per feature, and the gradient by a needs no product at all.
    """
    lr, momentum, proximal = hyper
    samples, features = x.shape
    hidden, rest_widths = widths[1], widths[1:]
    first, rest = parameters[: hidden * (features + 1)], parameters[hidden * (features + 1) :]
    weight, bias = _matrix(first, 0, hidden, features), first[hidden * features :]
    initial_outputs = np.dot(x, weight.T) + bias

    anchor, velocity, gradient = rest.copy(), np.zeros_like(rest), np.empty_like(rest)
    activations, deltas = _workspaces(rest_widths, edges)
    a, a_velocity = np.zeros_like(initial_outputs), np.zeros_like(initial_outputs)
    for order in orders:
        for part in range(len(edges) - 1):
            batch = order[edges[part] : edges[part + 1]]
            outputs = initial_outputs[batch] - lr * np.dot(gram[batch], a)
            _matrix(activations, 0, len(batch), hidden)[:] = np.maximum(outputs, ZERO)
            _gradient(rest, gradient, rest_widths, activations, deltas, y[batch], True)
            _step(rest, velocity, gradient, anchor, hyper)
            delta = _matrix(deltas, 0, len(batch), hidden)
            for i in range(samples):
                for j in range(hidden):
                    a_velocity[i, j] = momentum * a_velocity[i, j] - proximal * lr * a[i, j]  # W - W0 is -lr * a
                    a[i, j] += a_velocity[i, j]
            for i in range(len(batch)):
                for j in range(hidden):
                    a_velocity[batch[i], j] += delta[i, j]
                    a[batch[i], j] += delta[i, j]
    weight -= lr * np.dot(a.T, x)
    bias -= lr * a.sum(axis=0)


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
    """Run a minibatch, whose inputs are in `activations`, forward and backward; fill `gradient` and `deltas`.

    to_inputs: whether the inputs come out of a ReLU, and the gradient before that is wanted too.
    """
    size, layers = len(labels), len(widths) - 1
    first, offset = 0, 0  # of the layer's parameters, and of its inputs in the workspace
    for layer in range(layers):
        n, m = widths[layer], widths[layer + 1]
        outputs = _matrix(activations, offset + size * n, size, m)
        np.dot(_matrix(activations, offset, size, n), _matrix(parameters, first, m, n).T, outputs)
        outputs += parameters[first + m * n : first + m * (n + 1)]
        if layer < layers - 1:
            np.maximum(outputs, ZERO, outputs)  # NaN propagates
        first, offset = first + m * (n + 1), offset + size * n
    classes = widths[layers]
    _softmax_gradient(_matrix(activations, offset, size, classes), labels, _matrix(deltas, offset, size, classes))
    for layer in range(layers - 1, -1, -1):
        n, m = widths[layer], widths[layer + 1]
        first, offset = first - m * (n + 1), offset - size * n
        inputs, delta = _matrix(activations, offset, size, n), _matrix(deltas, offset + size * n, size, m)
        np.dot(delta.T, inputs, _matrix(gradient, first, m, n))
        gradient[first + m * n : first + m * (n + 1)] = delta.sum(axis=0)
        if layer > 0 or to_inputs:
            before = _matrix(deltas, offset, size, n)
            np.dot(delta, _matrix(parameters, first, m, n), before)
            before *= inputs > ZERO


@_compiled
def _softmax_gradient(logits: Floats, labels: Integers, delta: Floats) -> None:
    """Gradient of the mean cross-entropy by the logits: (softmax - one-hot) / size of the minibatch."""
    for i in range(len(labels)):
        delta[i] = np.exp(logits[i] - logits[i].max())
        delta[i] /= delta[i].sum()
        delta[i, labels[i]] -= ONE
    delta /= np.float32(len(labels))


@_compiled
def _step(parameters: Floats, velocity: Floats, gradient: Floats, anchor: Floats, hyper: Hyper) -> None:
    lr, momentum, proximal = hyper
    for i in range(len(parameters)):
        velocity[i] = momentum * velocity[i] + gradient[i] + proximal * (parameters[i] - anchor[i])
        parameters[i] -= lr * velocity[i]


@_compiled
def _workspaces(widths: Integers, edges: Integers) -> tuple[Floats, Floats]:
    """Return workspaces for the activations of the largest minibatch, and for their gradients."""
    size = np.diff(edges).max() * widths.sum()
    return np.empty(size, np.float32), np.empty(size, np.float32)


@_compiled
def _matrix(flat: Floats, first: int, rows: int, columns: int) -> Floats:
    """Return part of a flat array as a matrix."""
    return flat[first : first + rows * columns].reshape(rows, columns)
