"""Innermost loops over the processor's registers, in the language of Numba's compiler, LLVM.

Left to itself, the compiler does not keep the sums of a product in registers, and such loops take two or three times as
long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

REGISTER = 8  # floats; a processor with shorter registers takes several
LANES = 2 * REGISTER  # numbers that loops take at a time


def innermost(function: Callable[..., Any]) -> Callable[..., None]:
    """Make a loop, written by a `Writer`, callable in compiled code."""
    return cast(Callable[..., None], intrinsic(function))


class Writer:
    """Writes the compiler's own language, for innermost loops: left to itself it does not keep sums in registers."""

    register, integer = ir.VectorType(ir.FloatType(), REGISTER), ir.IntType(32)
    zero = ir.Constant(register, [0.0] * REGISTER)

    def __init__(self, context: Any, build: Any, signature: Any, values: Any) -> None:
        self.build, self.flags = build, ("contract",)  # a product and a sum may be one instruction
        arrays = [isinstance(kind, types.Array) for kind in signature.args]
        self.values = [
            context.make_array(kind)(context, build, value).data if is_array else value
            for kind, value, is_array in zip(signature.args, values, arrays, strict=True)
        ]
        for kind, is_array in zip(signature.args, arrays, strict=True):
            if is_array and kind.layout != "C":
                raise TypingError("arrays must lie in one piece")
            if is_array and kind.dtype not in (types.float32, types.intp):
                raise TypingError("numbers must be float32 or intp")

    @staticmethod
    def count(number: int) -> Any:
        return ir.Constant(ir.IntType(64), number)

    def move(self, pointer: Any, *steps: Any) -> Any:
        for step in steps:
            pointer = self.build.gep(pointer, [self.count(step) if isinstance(step, int) else step])
        return pointer

    def load(self, pointer: Any, *steps: Any) -> Any:
        """A register of numbers."""
        place = self.build.bitcast(self.move(pointer, *steps), self.register.as_pointer())
        return self.build.load(place, align=4)

    def store(self, value: Any, pointer: Any, *steps: Any) -> None:
        place = self.build.bitcast(self.move(pointer, *steps), self.register.as_pointer())
        self.build.store(value, place, align=4)

    def fill(self, pointer: Any, *steps: Any) -> Any:
        """A register filled with one number."""
        nothing = ir.Constant(self.register, ir.Undefined)
        one = self.build.insert_element(nothing, self.build.load(self.move(pointer, *steps)), self.integer(0))
        everywhere = ir.Constant(ir.VectorType(self.integer, REGISTER), [0] * REGISTER)
        return self.build.shuffle_vector(one, nothing, everywhere)

    def sums(self, values: list[Any]) -> list[Any]:
        """Variables that begin with some registers."""
        found = [cgutils.alloca_once(self.build, self.register) for _ in values]  # type: ignore[no-untyped-call]
        for value, total in zip(values, found, strict=True):
            self.build.store(value, total)
        return found

    def add_product(self, total: Any, a: Any, b: Any) -> None:
        product = self.build.fmul(a, b, flags=self.flags)
        self.build.store(self.build.fadd(self.build.load(total), product, flags=self.flags), total)

    def higher(self, a: Any, b: Any) -> Any:
        """The higher of two by lane; what is not a number shall not get lost."""
        build = self.build
        second = build.or_(build.fcmp_ordered(">", b, a), build.fcmp_unordered("!=", b, b))
        return build.select(second, b, a)

    def where_positive(self, value: Any, found: Any, relu: Any) -> Any:
        """Something by lane, but 0 where a value is not positive, if ReLU is wanted."""
        negative = self.build.fcmp_ordered("<=", value, self.zero)
        return self.build.select(relu, self.build.select(negative, self.zero, found), found)

    @contextmanager
    def turns(self, begin: Any, end: Any) -> Iterator[Any]:
        """A loop that the compiler does not unroll: the sums would not fit into registers."""
        build = self.build
        before, again, after = build.block, build.append_basic_block("again"), build.append_basic_block("after")
        build.cbranch(build.icmp_signed("<", begin, end), again, after)
        build.position_at_end(again)
        turn = build.phi(begin.type)
        yield turn
        # no instruction at all, but it cannot see through it and count the turns
        same = ir.FunctionType(begin.type, [begin.type])
        following = build.asm(same, "", "=r,0", [build.add(turn, self.count(1))], side_effect=False)
        turn.add_incoming(begin, before)
        turn.add_incoming(following, build.block)
        build.cbranch(build.icmp_signed("<", following, end), again, after)
        build.position_at_end(after)
