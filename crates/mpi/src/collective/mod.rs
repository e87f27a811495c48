//! Collective calls: broadcast, reduce, gather, scatter, all-to-all. They are posted in the order of the calls, which
//! is the same at every rank.

mod chunked;

use freehold::{Pod, Source, Stream, Target};

pub(crate) use self::chunked::{Barrier, Collective, CollectiveKind};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::raw::Redistribution;
use crate::request::Request;
use crate::world::World;

/// Each call has a form that waits until this rank's part is done, and one that does not: then later work with the
/// blocks waits on the device.
///
/// # Errors
/// [`Error::Transfer`] and [`Error::RankDied`]: the block to write is unchanged, or reads of it fail until it is
/// completely overwritten. Before anything starts: [`Error::NoSuchRank`], [`Error::LengthMismatch`], [`Error::NotRoot`]
/// and [`Error::UnsupportedOperation`].
impl World {
    /// Copies the root's block to the blocks of all ranks. The blocks have the same length.
    pub fn broadcast<T: Pod>(&self, stream: &Stream, block: &mut impl Target<T>, root: i32) -> Result<()> {
        self.finish(self.start_broadcast(stream, block, root)?).map(drop)
    }

    /// Starts a [`broadcast`](Self::broadcast) without waiting.
    pub fn ibroadcast<T: Pod>(&self, stream: &Stream, block: &mut impl Target<T>, root: i32) -> Result<Request<()>> {
        Ok(self.progress.submit(Box::new(self.start_broadcast(stream, block, root)?)))
    }

    /// Combines the blocks of all ranks, element by element, into one at the root. Other ranks pass `None` for `to`.
    pub fn reduce<T: Element>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: Option<&mut impl Target<T>>,
        op: Op,
        root: i32,
    ) -> Result<()> {
        self.finish(self.start_reduce(stream, from, to, op, Some(root))?).map(drop)
    }

    /// Starts a [`reduce`](Self::reduce) without waiting.
    pub fn ireduce<T: Element>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: Option<&mut impl Target<T>>,
        op: Op,
        root: i32,
    ) -> Result<Request<()>> {
        Ok(self.progress.submit(Box::new(self.start_reduce(stream, from, to, op, Some(root))?)))
    }

    /// Combines the blocks of all ranks, element by element, into one at every rank.
    pub fn allreduce<T: Element>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: &mut impl Target<T>,
        op: Op,
    ) -> Result<()> {
        self.finish(self.start_reduce(stream, from, Some(to), op, None)?).map(drop)
    }

    /// Starts an [`allreduce`](Self::allreduce) without waiting.
    pub fn iallreduce<T: Element>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: &mut impl Target<T>,
        op: Op,
    ) -> Result<Request<()>> {
        Ok(self.progress.submit(Box::new(self.start_reduce(stream, from, Some(to), op, None)?)))
    }

    /// Concatenates the blocks of all ranks, in rank order, into one at the root. Other ranks pass `None` for `to`.
    pub fn gather<T: Pod>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: Option<&mut impl Target<T>>,
        root: i32,
    ) -> Result<()> {
        self.finish(self.start_gather(stream, from, to, root)?).map(drop)
    }

    /// Starts a [`gather`](Self::gather) without waiting.
    pub fn igather<T: Pod>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: Option<&mut impl Target<T>>,
        root: i32,
    ) -> Result<Request<()>> {
        Ok(self.progress.submit(Box::new(self.start_gather(stream, from, to, root)?)))
    }

    /// Copies to each rank its part of the root's block. Other ranks pass `None` for `from`.
    pub fn scatter<T: Pod>(
        &self,
        stream: &Stream,
        from: Option<&impl Source<T>>,
        to: &mut impl Target<T>,
        root: i32,
    ) -> Result<()> {
        self.finish(self.start_scatter(stream, from, to, root)?).map(drop)
    }

    /// Starts a [`scatter`](Self::scatter) without waiting.
    pub fn iscatter<T: Pod>(
        &self,
        stream: &Stream,
        from: Option<&impl Source<T>>,
        to: &mut impl Target<T>,
        root: i32,
    ) -> Result<Request<()>> {
        Ok(self.progress.submit(Box::new(self.start_scatter(stream, from, to, root)?)))
    }

    /// Copies to each rank its part of every rank's block, in rank order.
    pub fn alltoall<T: Pod>(&self, stream: &Stream, from: &impl Source<T>, to: &mut impl Target<T>) -> Result<()> {
        self.finish(self.start_alltoall(stream, from, to)?).map(drop)
    }

    /// Starts an [`alltoall`](Self::alltoall) without waiting.
    pub fn ialltoall<T: Pod>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: &mut impl Target<T>,
    ) -> Result<Request<()>> {
        Ok(self.progress.submit(Box::new(self.start_alltoall(stream, from, to)?)))
    }

    fn start_broadcast<T: Pod>(&self, stream: &Stream, block: &mut impl Target<T>, root: i32) -> Result<Collective> {
        self.inner.check_rank(root)?;
        let bytes = block.len() * size_of::<T>();
        let access = stream.lend_mut(block)?;
        let is_root = root == self.inner.rank;
        let ends = if is_root { (Some(access), None) } else { (None, Some(access)) };
        Ok(Collective::new(CollectiveKind::Broadcast { root }, ends, bytes, size_of::<T>()))
    }

    fn start_reduce<T: Element>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: Option<&mut impl Target<T>>,
        op: Op,
        root: Option<i32>,
    ) -> Result<Collective> {
        op.check::<T>()?;
        if let Some(root) = root {
            self.check_root(root, to.is_some(), "write to")?;
        }
        let len = from.len();
        if let Some(to) = &to {
            check_len("the target of the reduction", to.len(), len)?;
        }
        let to = to.map(|to| stream.lend_mut(to)).transpose()?;
        let ends = (Some(stream.lend(from)?), to);
        let what = CollectiveKind::Reduce { root, op, kind: T::datatype() };
        Ok(Collective::new(what, ends, len * size_of::<T>(), size_of::<T>()))
    }

    fn start_gather<T: Pod>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: Option<&mut impl Target<T>>,
        root: i32,
    ) -> Result<Collective> {
        self.check_root(root, to.is_some(), "write to")?;
        let len = from.len();
        if let Some(to) = &to {
            check_len("the target of the gather", to.len(), len * self.inner.size as usize)?;
        }
        let to = to.map(|to| stream.lend_mut(to)).transpose()?;
        let ends = (Some(stream.lend(from)?), to);
        let what = CollectiveKind::Redistribute(Redistribution::Gather(root));
        Ok(Collective::new(what, ends, len * size_of::<T>(), size_of::<T>()))
    }

    fn start_scatter<T: Pod>(
        &self,
        stream: &Stream,
        from: Option<&impl Source<T>>,
        to: &mut impl Target<T>,
        root: i32,
    ) -> Result<Collective> {
        self.check_root(root, from.is_some(), "read from")?;
        let len = to.len();
        if let Some(from) = from {
            check_len("the source of the scatter", from.len(), len * self.inner.size as usize)?;
        }
        let to = stream.lend_mut(to)?;
        let from = from.map(|from| stream.lend(from)).transpose()?;
        let what = CollectiveKind::Redistribute(Redistribution::Scatter(root));
        Ok(Collective::new(what, (from, Some(to)), len * size_of::<T>(), size_of::<T>()))
    }

    fn start_alltoall<T: Pod>(
        &self,
        stream: &Stream,
        from: &impl Source<T>,
        to: &mut impl Target<T>,
    ) -> Result<Collective> {
        let size = self.inner.size as usize;
        check_len("the target of the all-to-all", to.len(), from.len())?;
        let part = from.len() / size;
        check_len("the source of the all-to-all", from.len(), part * size)?;
        let to = stream.lend_mut(to)?;
        let ends = (Some(stream.lend(from)?), Some(to));
        Ok(Collective::new(
            CollectiveKind::Redistribute(Redistribution::AllToAll),
            ends,
            part * size_of::<T>(),
            size_of::<T>(),
        ))
    }

    fn check_root(&self, root: i32, has_whole: bool, does: &'static str) -> Result<()> {
        self.inner.check_rank(root)?;
        if has_whole == (root == self.inner.rank) { Ok(()) } else { Err(Error::NotRoot { root, does }) }
    }
}

fn check_len(what: &'static str, elements: usize, wanted: usize) -> Result<()> {
    if elements == wanted { Ok(()) } else { Err(Error::LengthMismatch { what, elements, wanted }) }
}
