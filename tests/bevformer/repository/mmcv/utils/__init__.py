# SPDX-License-Identifier: Apache-2.0
import functools
import types
import warnings

ext_module = types.SimpleNamespace()


def _absent(*args, **kwargs):
    raise ImportError("the extension is not built")


for _name in ("ms_deform_attn", "modulated_deform_conv", "sigmoid_focal_loss"):
    setattr(ext_module, f"{_name}_forward", _absent)
    setattr(ext_module, f"{_name}_backward", _absent)


def deprecated_api_warning(name_dict, cls_name=None):
    def api_warning_wrapper(old_func):
        @functools.wraps(old_func)
        def new_func(*args, **kwargs):
            for old, new in name_dict.items():
                if old in kwargs:
                    warnings.warn(f"{cls_name}: {old} is now {new}", DeprecationWarning, stacklevel=2)
                    kwargs[new] = kwargs.pop(old)
            return old_func(*args, **kwargs)

        return new_func

    return api_warning_wrapper
