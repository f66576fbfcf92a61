"""Local training of UEs and evaluation of the models that come of it. Models are flat float32 vectors.

- `tasks`: what outputs and targets mean, with the loss and the score: classification, regression.
- `models`: a PyTorch network as a function of its flat parameter vector; the paper's MLP and CNN.
- `series`: networks for time series: convolutions over time, a gated recurrent unit.
- `jobs`: what a UE trains on, and the hyperparameters of its SGD.
- `training`: `Trainer` trains the received UEs of a round, by the engine that the scenario asks for:
  - `stacked_training`: perceptrons of several UEs side by side, as batched PyTorch products;
  - `autograd_training`: any network and any optimiser, one UE after the other;
  - `compiled_training`: perceptrons by Numba, in ordinary or dual form; `sgd_kernels` holds the compiled loops.
- `evaluation`: losses and accuracies of models, and of many averages of a round's models (coalitions);
  `side_by_side` computes convolutional networks of one architecture together, as a wide one.
- `layer_statistics`: second moments of the layers' inputs, by which noise on updates can be told from signal.
"""
