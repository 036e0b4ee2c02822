"""LLVM text of our kernels: as numba writes it, in fewer instructions.

numba's code serves all of Python. Kernels consist of sums of numbers, elements of arrays and loops over ranges, which
are written here with what they need: reference counts only if there are any, an element without the array around it, a
range with step 1 without a test of its sign. Results are bitwise the same: nothing here concerns floating-point
operations.
"""
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from numba.core import cgutils, errors, lowering
from numba.core import ir as numba_ir
from numba.core import types as numba_types
from numba.core.runtime.context import NRTContext

Code = Callable[..., Any]
types: Any = numba_types
_PLAIN = types.Integer, types.Float, types.Boolean
_POWERS = operator.pow, operator.ipow       # written differently if the exponent is known


class Memory(NRTContext):
    """Reference counts: values without any are not taken apart."""

    def get_meminfos(self, builder: Any, ty: Any, val: Any) -> list[tuple[Any, Any]]:
        model = self._context.data_model_manager[ty]
        if not self._context.is_counted(ty):
            return []
        found = [(ty, model.get_nrt_meminfo(builder, val))] if model.has_nrt_meminfo() else []
        for kind, member in model.traverse(builder):
            if self._context.is_counted(kind):
                found.extend(self.get_meminfos(builder, kind, member(val)))
        return found


class Lower(lowering.Lower):
    """numba's class, with shorter code for variables without references and for operators on numbers."""

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        kind = self.typeof(name)
        if name in self._singly_assigned_vars or self.context.is_counted(kind):
            super().storevar(value, name, argidx=argidx)
        else:
            self._alloca_var(name, kind)
            self.builder.store(value, self.getvar(name))

    def delvar(self, name: str) -> None:
        if name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)
        if self.context.is_counted(self.typeof(name)):
            super().delvar(name)

    def lower_block(self, block: Any) -> None:
        self.pre_block(block)
        for inst in block.body:
            self.loc = inst.loc
            try:
                self._write(inst)
            except Exception:
                with errors.new_error_context('lowering "{inst}" at {loc}', inst=inst, loc=self.loc,  # type: ignore[attr-defined]
                                              errcls_=partial(errors.LoweringError, loc=self.loc)):
                    raise
        self.post_block(block)

    def _write(self, inst: Any) -> None:
        if isinstance(inst, numba_ir.Assign) and not isinstance(inst.value, numba_ir.Arg):
            self.notify_loc(self.loc)
            value = self.lower_assign(self.typeof(inst.target.name), inst)
            self.storevar(value, inst.target.name)
        elif isinstance(inst, numba_ir.Del):
            self.delvar(inst.value)
        else:
            self.lower_inst(inst)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        signature = self.fndesc.calltypes[expr]
        if op in _POWERS or not all(isinstance(kind, _PLAIN) for kind in signature.args):
            return super().lower_binop(resty, expr, op)
        known = self.context.typing_context
        function = known.resolve_value_type(op)
        signature = known.resolve_function_type(function, signature.args, {})
        code = self.context.get_function(function, signature)
        return self._made(code(self.builder, self._given(signature, expr.lhs, expr.rhs)), signature, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        code = own_code(operator.getitem, signature)
        if code is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        made = code(self.context, self.builder, signature, self._given(signature, value, index))
        return self._made(made, signature, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        code = own_code(operator.setitem, signature)
        if code is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        return code(self.context, self.builder, signature, self._given(signature, target_var, index_var, value_var))

    def _given(self, signature: Any, *variables: Any) -> list[Any]:
        return [self.context.cast(self.builder, self.loadvar(each.name), self.typeof(each.name), kind)
                for each, kind in zip(variables, signature.args, strict=True)]

    def _made(self, value: Any, signature: Any, kind: Any) -> Any:
        return self.context.cast(self.builder, value, signature.return_type, kind)


def own_code(function: Any, signature: Any) -> Code | None:
    """Our code for a function of numba's, which returns None to leave a case to numba; None if there is none."""
    key, args = getattr(function, "typing_key", function), signature.args
    if key is range and all(isinstance(kind, types.Integer) for kind in args):
        return _range
    if key == "getiter" and isinstance(args[0], types.RangeType) and args[0].dtype.signed:
        return _begin
    if key == "iternext" and isinstance(args[0], types.RangeIteratorType):
        return _next
    if key is operator.getitem and _is_element(args[0], args[1]):
        return _get
    if key is operator.setitem and _is_element(args[0], args[1]) and isinstance(args[2], _PLAIN):
        return _set
    return None


def _range(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """A range that remembers its parts."""
    number = context.get_value_type(signature.return_type).elements[0]
    parts = [number(0), *args, number(1)] if len(args) == 1 else [*args, number(1)][:3]
    made = cgutils.pack_struct(builder, parts)
    made.parts = parts
    return made


def _begin(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The iterator over a range with a known positive step: pointers to its position and to the number left."""
    parts: Any = getattr(args[0], "parts", None)
    if parts is None or not _is_constant(parts[2], 1):
        return None
    start, stop, step = parts
    length, number = builder.sub(stop, start), step.type
    count = length if step.constant == 1 else builder.udiv(builder.add(length, number(step.constant - 1)), step)
    count = builder.select(builder.icmp_signed(">", length, number(0)), count, number(0))
    places = [cgutils.alloca_once(builder, number) for _ in range(2)]
    for value, place in zip((start, count), places, strict=True):
        builder.store(value, place)
    return cgutils.pack_struct(builder, [places[0], stop, step, places[1]])


def _next(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The next number of a range, and whether there is one."""
    place, step, left = (builder.extract_value(args[0], n) for n in (0, 2, 3))
    count, value = builder.load(left), builder.load(place)
    valid = builder.icmp_signed(">", count, count.type(0))
    builder.store(builder.sub(count, count.type(1), flags=["nsw"]), left)
    builder.store(builder.add(value, step), place)
    pair = context.get_constant_undef(signature.return_type)
    pair = builder.insert_value(builder.insert_value(pair, value, 0), valid, 1)
    pair.parts = value, valid
    return pair


def _is_constant(value: Any, least: int) -> bool:
    known = getattr(value, "constant", None)       # only LLVM's constants have one
    return isinstance(known, int) and known >= least


def _is_element(array: Any, index: Any) -> bool:
    """Whether this index selects a number in an array."""
    indices = tuple(index.types) if isinstance(index, types.BaseTuple) else (index,)
    return (type(array) is types.Array and isinstance(array.dtype, _PLAIN) and array.layout in "AC"
            and len(indices) == array.ndim > 0 and all(isinstance(each, types.Integer) for each in indices))


def part_of(builder: Any, value: Any, n: int) -> Any:
    """An element of a tuple or pair: the value that it was made from, if that is known."""
    parts = getattr(value, "parts", None)
    return builder.extract_value(value, n) if parts is None else parts[n]


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The address of an element of an array. A negative index counts from the end."""
    (array, index), (values, at) = signature.args[:2], args[:2]
    field = context.data_model_manager[array].get_field_position
    shape, strides = field("shape"), field("strides")
    if isinstance(index, types.BaseTuple):
        given = [(kind, part_of(builder, at, n)) for n, kind in enumerate(index.types)]
    else:
        given = [(index, at)]
    places = [_from_start(context, builder, kind, value, (values, [shape, n])) for n, (kind, value) in enumerate(given)]
    data = builder.extract_value(values, field("data"))
    if array.layout == "A":
        steps = [builder.mul(builder.extract_value(values, [strides, n]), each) for n, each in enumerate(places)]
        return cgutils.pointer_add(builder, data, reduce(builder.add, steps))
    place = places[0]
    for n, each in enumerate(places[1:], start=1):
        place = builder.add(builder.mul(place, builder.extract_value(values, [shape, n])), each)
    return builder.gep(data, [place])


def _from_start(context: Any, builder: Any, kind: Any, value: Any, length: Any) -> Any:
    """An index counted from 0."""
    place = context.cast(builder, value, kind, types.intp if kind.signed else types.uintp)
    if not kind.signed or _is_constant(place, 0):
        return place
    negative = builder.icmp_signed("<", place, place.type(0))
    return builder.select(negative, builder.add(place, builder.extract_value(*length)), place)


def _get(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    from numba.np import arrayobj  # takes 20 ms, and only compiling needs it

    return arrayobj.load_item(context, builder, signature.args[0], _place(context, builder, signature, args))


def _set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    from numba.np import arrayobj

    array, _, kind = signature.args
    value = context.cast(builder, args[2], kind, array.dtype)
    arrayobj.store_item(context, builder, array, value, _place(context, builder, signature, args))
    return context.get_dummy_value()
