# SPDX-License-Identifier: Apache-2.0
"""Spatial cross attention whose hit queries are found once a step, for all cameras and layers.

A camera sees a part of the BEV queries; these are gathered into a batch of cameras, attended, and added up again. Which
they are depends on the mask alone. It is looked at once: one transfer, of how many queries each camera sees. Everything
else is made on the device. Gathering is one operation forward and one backward, in both directions without atomic
additions, in the order of the cameras.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.nn import functional

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.attend import MapsOf, attention_of, project, unfit
from turbo_hydra.catalogs.remembering import LastResult

Function = Callable[..., Any]


class Plan(NamedTuple):
    """Where queries go; N cameras, Q queries, `longest` of them seen by one camera, `most` cameras seeing one query.

    Attributes
    ----------
    longest : int
        0 where no camera sees any.
    taken : Tensor
        [N * longest]: the query at each place of the batch; 0 where a camera has none left.
    there : Tensor
        [N * longest, 1]: 1 where it has.
    places : Tensor
        [Q, most]: in which places of the batch a query is; 0 where there is no further.
    counted : Tensor
        [Q, most]: 1 where there is.
    references : Tensor
        [B * N, longest, D, 2]: reference points of the batch.
    cameras : Tensor
        [B, Q]: how many cameras see a query, at least 1.
    """

    longest: int
    taken: Tensor
    there: Tensor
    places: Tensor
    counted: Tensor
    references: Tensor
    cameras: Tensor


def plan(bev_mask: Tensor, reference_points_cam: Tensor) -> Plan:
    """The plan for a mask [N, B, Q, D] and reference points [N, B, Q, D, 2].

    As upstream has it, what the first sample's cameras see is taken for all samples.
    """
    cameras, batch, queries, depth = bev_mask.shape
    device, dtype = bev_mask.device, reference_points_cam.dtype
    hit = bev_mask[:, 0].any(-1)
    seen, seeing = hit.sum(1), hit.sum(0)
    *numbers, most = torch.cat((seen, seeing.amax().unsqueeze(0))).tolist()
    longest = max(numbers)
    camera, query = torch.arange(cameras, device=device).unsqueeze(1), torch.arange(queries, device=device)
    place = hit.cumsum(1) - 1 + camera * longest
    # What is not hit goes to one place at the end, which is cut off.
    taken = torch.zeros(cameras * longest + 1, dtype=torch.long, device=device)
    taken.scatter_(0, torch.where(hit, place, cameras * longest).flatten(), query.repeat(cameras))
    taken = taken[:-1]
    places = torch.zeros(queries, most + 1, dtype=torch.long, device=device)
    places.scatter_(1, torch.where(hit, hit.cumsum(0) - 1, most).t(), torch.where(hit, place, 0).t())
    references = reference_points_cam.transpose(0, 1).reshape(batch, cameras * queries, depth, 2)
    of_camera = (taken.view(cameras, longest) + camera * queries).flatten()
    return Plan(
        longest,
        taken,
        (torch.arange(longest, device=device) < seen.unsqueeze(1)).view(-1, 1).to(dtype),
        places[:, :most],
        (torch.arange(most, device=device) < seeing.unsqueeze(1)).to(dtype),
        references.index_select(1, of_camera).view(batch * cameras, longest, depth, 2),
        torch.clamp((bev_mask.sum(-1) > 0).permute(1, 2, 0).sum(-1), min=1.0),
    )


@_disable_dynamo  # unlike torch.compiler.disable it does not import the compiler
def _look(last: LastResult[Plan], mask: Any, points: Any) -> Plan:
    """The plan, made once; a compiler leaves its graph here, since how long the batch is, is not known before."""
    return last.get(lambda: plan(mask, points), (mask, points))


class _Gather(torch.autograd.Function):
    """[B, Q, C] -> [B, N * longest, C]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, plan: Plan) -> Tensor:
        ctx.plan = plan
        return query.index_select(1, plan.taken)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.plan), None


class _Scatter(torch.autograd.Function):
    """[B, N * longest, C] -> [B, Q, C]: the sum over the cameras that see a query."""

    @staticmethod
    def forward(ctx: Any, batch: Tensor, plan: Plan) -> Tensor:
        ctx.plan = plan
        return _summed(batch, plan)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(1, ctx.plan.taken).mul_(ctx.plan.there), None


# Typed names of what torch gives no types to.
_gather: Callable[[Tensor, Plan], Tensor] = _Gather.apply
_scatter: Callable[[Tensor, Plan], Tensor] = _Scatter.apply


def _summed(batch: Tensor, plan: Plan) -> Tensor:
    counted = plan.counted.to(batch.dtype)
    sums = [functional.embedding_bag(plan.places, one, per_sample_weights=counted, mode="sum") for one in batch]
    return torch.stack(sums) if len(sums) > 1 else sums[0].unsqueeze(0)


def cross_attention(original: Function, options: None) -> Function:
    """Factory for `SpatialCrossAttention.forward`."""
    last: LastResult[Plan] = LastResult()

    def make(inner: Function) -> Function:
        def forward(
            self: Any,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            residual: Tensor | None = None,
            query_pos: Tensor | None = None,
            key_padding_mask: Tensor | None = None,
            reference_points: Tensor | None = None,
            spatial_shapes: Tensor | None = None,
            reference_points_cam: Tensor | None = None,
            bev_mask: Tensor | None = None,
            level_start_index: Tensor | None = None,
            flag: str = "encoder",
            **kwargs: Any,
        ) -> Tensor:
            reason = _unfit(self, query, key, value, residual, reference_points_cam, bev_mask)
            made = None
            if reason is None:
                made = _look(last, bev_mask, reference_points_cam)
                reason = None if made.longest else "no camera sees any query"
            if reason is not None or made is None:
                fallback(reason or "")
                result: Tensor = inner(
                    self,
                    query,
                    key,
                    value,
                    residual,
                    query_pos,
                    key_padding_mask,
                    reference_points,
                    spatial_shapes,
                    reference_points_cam,
                    bev_mask,
                    level_start_index,
                    flag,
                    **kwargs,
                )
                return result
            identity = query
            if query_pos is not None:
                query = query + query_pos
            batch, width, cameras = query.shape[0], self.embed_dims, self.num_cams

            def by_camera(features: Tensor) -> Tensor:
                return features.permute(2, 0, 1, 3).reshape(batch * cameras, features.shape[1], width)

            features = by_camera(value)
            attended = self.deformable_attention(
                query=_gather(query, made).view(batch * cameras, made.longest, width),
                key=features if key is value else by_camera(key),
                value=features,
                reference_points=made.references,
                spatial_shapes=spatial_shapes,
                level_start_index=level_start_index,
            )
            slots = _scatter(attended.view(batch, cameras * made.longest, width).to(query.dtype), made)
            slots = self.output_proj(slots / made.cameras.unsqueeze(-1))
            output: Tensor = self.dropout(slots) + identity
            return output

        return forward

    return redecorated(original, make)


def _unfit(self: Any, query: Tensor, key: Any, value: Any, residual: Any, points: Any, mask: Any) -> str | None:
    if residual is not None or key is None or value is None or points is None or mask is None:
        return "called in another way"
    if query.dtype not in (torch.float32, torch.float64) or points.dtype != query.dtype:
        return "neither float32 nor float64"
    if mask.dim() != 4 or mask.shape[0] != self.num_cams or mask.shape[1:3] != query.shape[:2]:
        return "a mask of another shape"
    if points.requires_grad:
        return "reference points that need a gradient"
    return None


def camera_attention(original: Function, options: None) -> Function:
    """Factory for `MSDeformableAttention3D.forward`."""
    maps_of = MapsOf()

    def make(inner: Function) -> Function:
        attend = attention_of(inner)

        def forward(
            self: Any,
            query: Tensor,
            key: Tensor | None = None,
            value: Tensor | None = None,
            identity: Tensor | None = None,
            query_pos: Tensor | None = None,
            key_padding_mask: Tensor | None = None,
            reference_points: Any = None,
            spatial_shapes: Any = None,
            level_start_index: Any = None,
            **kwargs: Any,
        ) -> Tensor:
            features = query if value is None else value
            maps = maps_of(spatial_shapes)
            reason = unfit(self, features, reference_points, maps)
            if reason is not None:
                fallback(reason)
                result: Tensor = inner(
                    self,
                    query,
                    key,
                    value,
                    identity,
                    query_pos,
                    key_padding_mask,
                    reference_points,
                    spatial_shapes,
                    level_start_index,
                    **kwargs,
                )
                return result
            if query_pos is not None:
                query = query + query_pos
            value, moved, weights = project(self, query, features, key_padding_mask, maps)
            # Each of the pillar's heights has its own reference point, and points / heights points around it.
            around = moved.unflatten(4, (-1, reference_points.shape[2]))
            locations = (reference_points[:, :, None, None, None] + around).flatten(4, 5)
            output = attend(value, spatial_shapes, level_start_index, locations, weights, self.im2col_step)
            return output if self.batch_first else output.permute(1, 0, 2)

        return forward

    return redecorated(original, make)
