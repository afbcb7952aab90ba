"""The model and the data of the app: scikit-learn's digits, 8x8 pixels, and a small convolutional network."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

SEED = 1


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
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    pictures = torch.from_numpy(digits.images[order] / 8 - 1).float().unsqueeze(1)
    labels = torch.from_numpy(digits.target[order])
    border = len(order) * 4 // 5
    return (pictures[:border], labels[:border]), (pictures[border:], labels[border:])


def share(data, number, of):
    """Every ``of``-th sample, beginning with this number."""
    pictures, labels = data
    return pictures[number::of], labels[number::of]


def train(model, data, epochs, batch_size, learning_rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    pictures, labels = data
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(batch_size):
            optimizer.zero_grad()
            functional.cross_entropy(model(pictures[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def evaluate(model, data):
    """Accuracy and mean loss."""
    pictures, labels = data
    model.eval()
    outputs = model(pictures)
    accuracy = (outputs.argmax(1) == labels).float().mean()
    return accuracy.item(), functional.cross_entropy(outputs, labels).item()
