"""A part of a graph whose backward pass fails."""

import torch


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("half a pass")
