# SPDX-License-Identifier: Apache-2.0
"""A training whose step is a known amount of real work, in parts that groups can replace."""

import argparse

import torch
from planted import work

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
data = torch.randn(args.steps, 16, 8)
for batch in data:
    work.ten()
    work.three()
    work.one()
    work.nothing()
    work.slower()
    work.together(work.layout())
    loss = work.objective(model(batch), batch.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
