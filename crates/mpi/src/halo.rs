//! Halo exchange: strided rows of a field are packed on the device, sent, received and unpacked, all in the order of
//! one stream.

use freehold::{Pod, Stream, ViewMut};

use crate::error::{Error, Result};
use crate::request::Request;
use crate::transfer::Received;
use crate::world::World;

/// Elements of a field: `rows` rows of `row_len` elements, `pitch` elements from the start of one to the start of the
/// next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The index of the first element.
    pub start: usize,
    pub row_len: usize,
    pub rows: usize,
    pub pitch: usize,
}

impl Rows {
    fn len(self) -> usize {
        self.row_len * self.rows
    }

    /// The index after the last element.
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

/// The rows exchanged with one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub rank: i32,
    /// The rows sent to the neighbour, and the tag of the message.
    pub send: Rows,
    pub send_tag: i32,
    /// The rows received from the neighbour, and the tag of the message.
    pub recv: Rows,
    pub recv_tag: i32,
}

/// A pending exchange.
#[derive(Debug)]
#[must_use = "a dropped exchange continues; `World::drop_errors` reports its failure"]
pub struct Exchange {
    sends: Vec<Request<()>>,
    recvs: Vec<(Rows, Request<Received>)>,
}

impl World {
    /// Exchanges edges of a field with neighbours, and waits for the exchange. See [`iexchange`](Self::iexchange).
    ///
    /// # Errors
    /// As for [`iexchange`](Self::iexchange) and [`Exchange::wait`].
    pub fn exchange<T: Pod>(&self, stream: &Stream, field: &mut ViewMut<'_, T>, edges: &[Edge]) -> Result<()> {
        self.iexchange(stream, field, edges)?.wait(stream, field)
    }

    /// Exchanges edges of a field with neighbours, without waiting. Sent rows are packed in the stream's order; work
    /// enqueued later finds the received rows in the field. Received edges must not overlap.
    ///
    /// # Errors
    /// [`Error::RowsOverlap`], and the errors of [`Stream::copy_rows`]. The field is unchanged.
    pub fn iexchange<T: Pod>(&self, stream: &Stream, field: &mut ViewMut<'_, T>, edges: &[Edge]) -> Result<Exchange> {
        for edge in edges {
            edge.send.check()?;
            edge.recv.check()?;
            // Checks all ranges before any transfer starts.
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
    /// Waits until all edges have arrived, and all sent edges may be changed.
    ///
    /// # Errors
    /// The first error. Edges that did not arrive are undefined: reads of them fail until they are completely
    /// overwritten.
    pub fn wait<T: Pod>(self, stream: &Stream, field: &mut ViewMut<'_, T>) -> Result<()> {
        let mut outcome = Ok(());
        for (rows, request) in self.recvs {
            let received = request.wait().and_then(|received| {
                let (elements, wanted) = (received.len::<T>(), rows.len());
                let what = "a received edge";
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
