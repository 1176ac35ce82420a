"""Products for reading equal PyTorch's, whichever way they take."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from llamita.model.precision import linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("outputs", [1, 2, 7, 48])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 6, 40])
def test_equals_float64(rows: int, outputs: int, has_bias: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows * outputs)
    x, weight = (torch.randn(n, 24, generator=generator).to(dtype) for n in (rows, outputs))
    bias = torch.randn(outputs, generator=generator).to(dtype) if has_bias else None
    product = linear(x, weight, bias)
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert product.shape == (rows, outputs)
    assert product.dtype == dtype
    assert product.is_contiguous()
    torch.testing.assert_close(
        product.double(),
        exact,
        rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
        atol=5e-2 if dtype == torch.bfloat16 else 1e-5,
    )
