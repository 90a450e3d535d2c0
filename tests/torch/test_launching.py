"""Calls of a kernel on torch tensors: addresses, layouts, alignment; kernels are the CPU's here."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import pytest
import tvm

from pipeliner.torch.attention import attended
from pipeliner.torch.libraries import LoadedKernel
from pipeliner.torch.problems import TorchCall, Window, convolution, product
from pipeliner.torch.workspaces import Workspace

torch = pytest.importorskip("torch", reason="PyTorch is missing")
launching: Any = importlib.import_module("pipeliner.torch.launching")
strided: Any = importlib.import_module("pipeliner.torch.dispatch").strided

CPU = 1
QUERIES = 16


def on_cpu(call: TorchCall, *workspaces: Workspace) -> Any:
    """A launcher of the workload as it is, unscheduled, which runs on the CPU."""
    name = call.spec.name
    function = call.spec.function().with_attr("global_symbol", name)
    run = tvm.compile(tvm.IRModule({name: function}), "llvm")[name]
    return launching.launcher(LoadedKernel(run, workspaces, "built"), call, 0, CPU)


def test_rows_in_several_axes_by_a_transposed_matrix() -> None:
    x, w, bias = torch.randn(2, 3, 8), torch.randn(5, 8), torch.randn(5)
    launch = on_cpu(product(strided(x), strided(w.t()), strided(bias)))
    for _ in range(2):
        out = launch(x, w, bias)
        torch.testing.assert_close(out, torch.nn.functional.linear(x, w, bias))
        x = torch.randn(2, 3, 8)


def test_an_image() -> None:
    x = torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last)
    f = torch.randn(3, 4, 3, 3).to(memory_format=torch.channels_last)
    window = Window((1, 2), (1, 0), (1, 1), 1)
    launch = on_cpu(convolution(strided(x), strided(f), None, window))
    right = torch.nn.functional.conv2d(x, f, None, (1, 2), (1, 0))
    out = launch(x, f)
    torch.testing.assert_close(out, right)
    assert out.stride() == right.stride()


def test_heads_of_one_product_and_a_cache() -> None:
    """Q is a part of Q, K and V at once, K and V are the first tokens of a cache."""
    q = torch.randn(2, QUERIES, 7, 8).bfloat16()[:, :, :4].transpose(1, 2)
    k, v = (torch.randn(2, 2, 9, 8).bfloat16()[:, :, :6] for _ in "kv")
    call = attended(strided(q), strided(k), strided(v), causal=True, scale=0.5)
    out = on_cpu(call)(q, k, v)
    right = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=True, scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(out.float(), right, rtol=1e-2, atol=1e-2)
    assert out.stride() == (QUERIES * 4 * 8, 8, 4 * 8, 1)


def test_data_that_is_not_aligned_is_not_touched() -> None:
    whole = torch.randn(65)
    a, b = whole[1:].view(8, 8), torch.randn(8, 8)
    launch = on_cpu(product(strided(a), strided(b)))
    assert launch(a, b) is None
    assert launch(b, b) is not None


def test_workspaces_are_behind_the_output() -> None:
    a = torch.randn(8, 8)
    seen: list[Any] = []

    def run(*pointers: Any) -> None:
        seen.append(pointers)

    call = product(strided(a), strided(a))
    kernel = LoadedKernel(run, (Workspace((2, 8, 8), "float32"),), "built")
    launch = launching.launcher(kernel, call, 0, CPU)
    launch(a, a)
    (pointers,) = seen
    last = launching._DLTensor.from_address(pointers[-1].value)
    assert len(pointers) == 4
    assert (last.ndim, last.code, last.bits) == (3, 2, 32)
    assert last.data % 16 == 0


def test_threads_have_descriptions_of_their_own() -> None:
    """Between the addresses and the launch another thread may come in with its own."""
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    both = threading.Barrier(2)
    seen: dict[int, int] = {}

    def run(*pointers: Any) -> None:
        both.wait()
        first = launching._DLTensor.from_address(pointers[0].value)
        seen[threading.get_ident()] = first.data
        both.wait()

    launch = launching.launcher(
        LoadedKernel(run, (), "built"), product(strided(a), strided(a)), 0, CPU
    )
    threads = [threading.Thread(target=launch, args=(one, one)) for one in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen.values()) == sorted((a.data_ptr(), b.data_ptr()))
