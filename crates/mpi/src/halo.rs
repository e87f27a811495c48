//! Edges of a field that neighbours exchange: rows that lie apart are packed on the device, sent, received, and unpacked, all in the
//! order of one stream.

use freehold::{Pod, Stream, ViewMut};

use crate::error::{Error, Result};
use crate::request::Request;
use crate::transfer::Received;
use crate::world::World;

/// Elements of a field: `rows` rows of `row` elements, each `pitch` behind the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first element.
    pub start: usize,
    pub row_len: usize,
    pub rows: usize,
    pub pitch: usize,
}

impl Rows {
    fn len(self) -> usize {
        self.row_len * self.rows
    }

    /// One behind the last element.
    fn end(self) -> usize {
        self.start + self.pitch * (self.rows - 1) + self.row_len
    }

    fn check(self) -> Result<()> {
        let Self { row_len: row, rows, pitch, .. } = self;
        if row == 0 || rows == 0 {
            return Err(Error::Device(freehold::Error::NothingAsked));
        }
        if rows > 1 && pitch < row { Err(Error::RowsOverlap { row, pitch }) } else { Ok(()) }
    }
}

/// What is exchanged with one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub rank: i32,
    /// What it is given, and the tag of that message.
    pub send: Rows,
    pub send_tag: i32,
    /// What it gives, and the tag of that message.
    pub recv: Rows,
    pub recv_tag: i32,
}

/// An exchange that is under way.
#[derive(Debug)]
#[must_use = "an exchange that nobody waits for goes on; `World::troubles` tells if it fails"]
pub struct Exchange {
    sends: Vec<Request<()>>,
    recvs: Vec<(Rows, Request<Received>)>,
}

impl World {
    /// Exchanges edges of a field with neighbours, and waits for that. See [`iexchange`](Self::iexchange).
    ///
    /// # Errors
    /// As for [`iexchange`](Self::iexchange) and [`Exchange::wait`].
    pub fn exchange<T: Pod>(&self, stream: &Stream, field: &mut ViewMut<'_, T>, edges: &[Edge]) -> Result<()> {
        self.iexchange(stream, field, edges)?.wait(stream, field)
    }

    /// Exchanges edges of a field with neighbours. What is given is packed in the order of the stream, and what is taken lies in the
    /// field for all work that is put in later; no host waits. Edges that are taken do not overlap.
    ///
    /// # Errors
    /// [`Error::RowsOverlap`], and what [`Stream::copy_rows`] refuses: the field is as it was.
    pub fn iexchange<T: Pod>(&self, stream: &Stream, field: &mut ViewMut<'_, T>, edges: &[Edge]) -> Result<Exchange> {
        for edge in edges {
            edge.send.check()?;
            edge.recv.check()?;
            // Both lie in the field: nothing begins where one does not.
            field.view(edge.send.start..edge.send.end())?;
            field.view(edge.recv.start..edge.recv.end())?;
        }
        let (mut given, mut taken) = (Vec::with_capacity(edges.len()), Vec::with_capacity(edges.len()));
        let mut landings = Vec::with_capacity(edges.len());
        for edge in edges {
            let mut landing = stream.alloc::<T>(edge.recv.len())?;
            taken.push((edge.recv, self.irecv(stream, &mut landing, edge.rank, edge.recv_tag)?));
            landings.push(landing);
        }
        for edge in edges {
            let Rows { start, row_len: row, rows, pitch } = edge.send;
            let mut packed = stream.alloc::<T>(edge.send.len())?;
            stream.copy_rows(&field.view(start..edge.send.end())?, pitch, &mut packed, row, row, rows)?;
            given.push(self.isend(stream, &packed, edge.rank, edge.send_tag)?);
        }
        for (edge, landing) in edges.iter().zip(&landings) {
            let Rows { start, row_len: row, rows, pitch } = edge.recv;
            stream.copy_rows(landing, row, &mut field.view_mut(start..edge.recv.end())?, pitch, row, rows)?;
        }
        Ok(Exchange { sends: given, recvs: taken })
    }
}

impl Exchange {
    /// Waits until all edges are there, and all that were given may be changed.
    ///
    /// # Errors
    /// The first that went wrong. What did not arrive is undefined in the field: reading it is refused until it is written whole.
    pub fn wait<T: Pod>(self, stream: &Stream, field: &mut ViewMut<'_, T>) -> Result<()> {
        let mut outcome = Ok(());
        for (rows, request) in self.recvs {
            let received = request.wait().and_then(|received| {
                let (elements, wanted) = (received.len::<T>(), rows.len());
                let what = "an edge that arrived";
                if elements == wanted { Ok(()) } else { Err(Error::LengthMismatch { what, elements, wanted }) }
            });
            if let Err(error) = received {
                stream.lend_mut(&mut field.view_mut(rows.start..rows.end())?)?.failed();
                outcome = outcome.and(Err(error));
            }
        }
        self.sends.into_iter().fold(outcome, |outcome, request| outcome.and(request.wait()))
    }
}
