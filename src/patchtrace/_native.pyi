from numpy import bool_, float32, float64, int32
from numpy.typing import NDArray

_Axis = tuple[int, int, int, int]  # pad, positions, first interior position, interior positions

def instruction_sets() -> list[str]: ...
def processors() -> int: ...
def second_level_cache() -> int: ...
def scratch_bytes(
    channels: int,
    height: int,
    width: int,
    rows: _Axis,
    columns: _Axis,
    taps: int,
    pool: int,
    patchwork: bool,
    wide: bool,
    instructions: str,
) -> int: ...
def colour(block: NDArray[float32], moved: bool, threads: int) -> tuple[list[float], float]: ...
def compare(
    versions: NDArray[float32],
    signal: NDArray[float64],
    variance: NDArray[float64],
    wide: NDArray[bool_],
    block: NDArray[float32],
    train_colour: NDArray[float64],
    query_colour: NDArray[float64],
    rows: _Axis,
    columns: _Axis,
    taps: int,
    pool: int,
    middle: int,
    divisor: float,
    k: int,
    instructions: str,
    threads: int,
    log_normaliser: NDArray[float64],
    share: NDArray[float32],
    colour: NDArray[float32] | None,
    noise: NDArray[float32] | None,
    turned: NDArray[float32] | None,
    noise_rows: NDArray[int32] | None,
    noise_columns: NDArray[int32] | None,
    signs: NDArray[float32] | None,
    turned_rows: NDArray[bool_] | None,
) -> None: ...
