"""The model and the data of the app: scikit-learn's digits, 8x8 pixels, and a small convolutional network.

Flower starts a new process for each message, so imports count. The digits are read from scikit-learn's file and the
steps of SGD are written out: to import scikit-learn and torch.optim takes longer than to train.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

DIGITS = Path(find_spec("sklearn").origin).parent / "datasets" / "data" / "digits.csv.gz"
SEED = 1

torch.set_num_threads(1)


def make_model():
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.Linear(32, 10),
    )


def load_data():
    """Pictures in [-1, 1] and labels; four fifths for training, in an order that all nodes share."""
    table = np.random.default_rng(SEED).permutation(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
    pictures = torch.from_numpy(table[:, :-1] / 8 - 1).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(table[:, -1]).long()
    border = len(table) * 4 // 5
    return (pictures[:border], labels[:border]), (pictures[border:], labels[border:])


def share(data, number, of):
    """Every ``of``-th sample, beginning with this number."""
    pictures, labels = data
    return pictures[number::of], labels[number::of]


def train(model, data, epochs, batch_size, learning_rate):
    pictures, labels = data
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(batch_size):
            loss = functional.cross_entropy(model(pictures[batch]), labels[batch])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= learning_rate * gradient


@torch.no_grad()
def evaluate(model, data):
    """Accuracy and mean loss."""
    pictures, labels = data
    model.eval()
    outputs = model(pictures)
    accuracy = (outputs.argmax(1) == labels).float().mean()
    return accuracy.item(), functional.cross_entropy(outputs, labels).item()
