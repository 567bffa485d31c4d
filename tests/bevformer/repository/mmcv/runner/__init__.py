# SPDX-License-Identifier: Apache-2.0
"""Decorators that cast, each a wrapper of the one name `new_func`."""

import functools
import inspect

import torch


def _cast(value, source, target):
    if isinstance(value, torch.Tensor):
        return value.to(target) if value.dtype == source else value
    if isinstance(value, dict):
        return {key: _cast(item, source, target) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, source, target) for item in value)
    return value


def _casting(source, target, *, autocast):
    def decorator(apply_to=None):
        def wrapper(old_func):
            @functools.wraps(old_func)
            def new_func(*args, **kwargs):
                if not getattr(args[0], "fp16_enabled", False):
                    return old_func(*args, **kwargs)
                names = inspect.getfullargspec(old_func).args
                chosen = names if apply_to is None else apply_to
                new = [_cast(a, source, target) if n in chosen else a for n, a in zip(names, args, strict=False)]
                kwargs = {n: _cast(a, source, target) if n in chosen else a for n, a in kwargs.items()}
                with torch.autocast("cpu", enabled=autocast, dtype=target if autocast else torch.bfloat16):
                    return old_func(*new, *args[len(new) :], **kwargs)

            return new_func

        return wrapper

    return decorator


# bfloat16 in place of float16, which a CPU is slow at.
auto_fp16 = _casting(torch.float32, torch.bfloat16, autocast=True)
force_fp32 = _casting(torch.bfloat16, torch.float32, autocast=False)
