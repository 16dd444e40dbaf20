"""The grammar of number texts, and what holds for every shape and file name."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.testing.node_context import execute
from codefyui_nodes_torch.base import UnfitError
from codefyui_nodes_torch.integers import integers
from codefyui_nodes_torch.io.image_writer import SUFFIXES, _names
from codefyui_nodes_torch.tensor.create import TensorCreate
from codefyui_nodes_torch.tensor.shape import Permute, Split
from codefyui_nodes_torch.utility.images import grid

sizes = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@given(
    st.lists(st.integers(), min_size=1), st.sampled_from([",", ", ", " ,"]), st.sampled_from(["", ",", " , "])
)
def test_numbers_are_read_as_they_were_written(numbers, comma, end):
    assert integers(comma.join(map(str, numbers)) + end, "Node: param") == tuple(numbers)


def read(text):
    try:
        return integers(text, "Node: param"), ""
    except UnfitError as error:
        return (), str(error)


@given(st.text())
def test_a_text_gives_numbers_or_says_whose_it_is(text):
    found, message = read(text)
    assert found or message.startswith("Node: param ")


def test_a_number_in_place_of_a_text_is_read():
    assert integers(512, "Node: param") == (512,)


@given(sizes)
def test_arange_counts_every_element_once_in_order(shape):
    out = execute(TensorCreate, shape=",".join(map(str, shape)), fill="arange")["tensor"]
    assert list(out.shape) == shape
    assert out.flatten().tolist() == list(range(math.prod(shape)))


@given(st.integers(1, 40), st.integers(1, 32))
def test_split_fills_every_output_or_refuses(rows, chunks):
    tensor = torch.arange(rows)
    try:
        out = execute(Split, {"tensor": tensor}, chunks=chunks)
    except UnfitError:
        assert len(tensor.chunk(chunks)) < chunks
    else:
        assert list(out) == [f"chunk_{n}" for n in range(chunks)]
        assert torch.equal(torch.cat(list(out.values())), tensor)


@given(st.permutations(range(3)))
def test_a_permutation_and_its_inverse_give_the_tensor_back(order):
    tensor = torch.arange(24).reshape(2, 3, 4)
    there = execute(Permute, {"tensor": tensor}, dims=",".join(map(str, order)))["tensor"]
    inverse = [order.index(axis) for axis in range(3)]
    back = execute(Permute, {"tensor": there}, dims=",".join(map(str, inverse)))["tensor"]
    assert torch.equal(back, tensor)


@given(st.integers(1, 20), st.integers(1, 3), st.integers(1, 3))
def test_every_image_is_somewhere_in_a_grid(count, height, width):
    images = [np.full((height, width), 1 + index, np.float32) for index in range(count)]
    sheet = grid(images)
    for index in range(count):
        assert (sheet == 1 + index).sum() == height * width
    assert (sheet == 0).sum() == sheet.size - count * height * width


@given(
    st.sampled_from(["x", "a/b", "v1.2", "x.png", "x.JPG", "x.tif", ".hidden"]),
    st.sampled_from(sorted(SUFFIXES)),
    st.integers(1, 120),
)
def test_the_files_of_a_batch_have_different_names_in_order(path, kind, count):
    names = _names(path, kind, count)
    assert len(set(names)) == count
    assert names == sorted(names)
    assert all(name.lower().endswith(SUFFIXES[kind]) for name in names)


@pytest.mark.parametrize("text", ["1.5", "1;2", "a", "1 2", "--1"])
def test_what_is_no_whole_number_is_shown(text):
    with pytest.raises(UnfitError, match=f"Node: param needs whole numbers.*{text}"):
        integers(text, "Node: param")
