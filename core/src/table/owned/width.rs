//! The width of a row: a constant for the common dimensions, so that the compiler unrolls loops over a row,
//! else a number known at run time.

use gannet_optim::Update;

/// Weights a row.
pub(crate) trait Width: Copy {
    fn dim(self) -> usize;

    /// Floats of a stored row of rule `U`: [`crate::Schema::floats`].
    #[inline(always)]
    fn floats<U: Update>(self) -> usize {
        U::floats(self.dim())
    }

    /// Floats of a stored row of rule `U` that its weights are computed from.
    #[inline(always)]
    fn weight_floats<U: Update>(self) -> usize {
        U::weight_floats(self.dim())
    }

    /// Bytes from one slot to the next, for rows of rule `U`: [`crate::Schema::stride`].
    #[inline(always)]
    fn stride<U: Update>(self) -> usize {
        16 + (self.floats::<U>() * 4).next_multiple_of(8)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Fixed<const D: usize>;

impl<const D: usize> Width for Fixed<D> {
    #[inline(always)]
    fn dim(self) -> usize {
        D
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Any(pub(crate) usize);

impl Width for Any {
    #[inline(always)]
    fn dim(self) -> usize {
        self.0
    }
}

/// Runs `$body` with `$width` bound to the width of `$dim`.
macro_rules! by_width {
    ($dim:expr, $width:ident => $body:expr) => {
        match $dim {
            1 => {
                let $width = $crate::table::owned::width::Fixed::<1>;
                $body
            }
            16 => {
                let $width = $crate::table::owned::width::Fixed::<16>;
                $body
            }
            64 => {
                let $width = $crate::table::owned::width::Fixed::<64>;
                $body
            }
            n => {
                let $width = $crate::table::owned::width::Any(n);
                $body
            }
        }
    };
}
pub(crate) use by_width;
