//! What a piece of work is, and where the program submitted it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::access::Spot;
use crate::finding::Location;
use crate::shared_frees::Foreign;
use crate::sites::{self, Site};

/// What a task is, and where the program submitted it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The function of the API, if the call did not come through an exported one. `the program` for a load or store.
    pub function: &'static str,
    /// The kernel that it runs.
    pub launch: Option<Launch>,
    /// Where the program made the call. `None` for work of the driver.
    pub site: Option<Site>,
    /// The call, if another process made it.
    pub elsewhere: Option<Foreign>,
}

/// What loads and stores of the host are named.
pub(crate) const PROGRAM: &str = "the program";

impl Origin {
    /// A load or store of the host.
    pub(crate) fn program(site: Site) -> Self {
        Self { function: PROGRAM, launch: None, site: Some(site), elsewhere: None }
    }

    pub(crate) fn is_program(&self) -> bool {
        self.launch.is_none() && self.function == PROGRAM
    }

    /// The call of the API that the program is in.
    pub(crate) fn current(function: &'static str, launch: Option<Launch>) -> Self {
        Self { function, launch, site: Some(sites::capture_again()), elsewhere: None }
    }

    /// A call of another process.
    pub(crate) fn elsewhere(call: Foreign) -> Self {
        Self { function: "", launch: None, site: None, elsewhere: Some(call) }
    }

    /// Names the kernel, or the function that the program called.
    pub(crate) fn name(&self) -> String {
        if let Some(Foreign { location, process }) = &self.elsewhere {
            return format!("{} of process {process}", location.function);
        }
        match &self.launch {
            Some(Launch { kernel, .. }) => format!("kernel {}", sites::demangled(&kernel.name)),
            None => self.site.and_then(Site::function).unwrap_or_else(|| self.function.to_owned()),
        }
    }

    pub(crate) fn location(&self, spot: Spot) -> Location {
        if let Some(Foreign { location, .. }) = &self.elsewhere {
            return Location::clone(location);
        }
        let stack = self.site.map(Site::frames).unwrap_or_default();
        let Some(Launch { kernel, grid, block }) = &self.launch else {
            return Location { function: self.name(), stack, ..Location::default() };
        };
        Location {
            function: sites::demangled(&kernel.name),
            source: (kernel.source)(spot.line()),
            ptx_line: Some(spot.line()),
            block: Some(coordinates(spot.block(), *grid)),
            thread: Some(coordinates(spot.thread().into(), *block)),
            stack,
        }
    }
}

/// Returns where the element with a number is in a box of some sizes.
fn coordinates(number: u64, sizes: [u32; 3]) -> [u32; 3] {
    let [x, y] = [sizes[0], sizes[1]].map(|size| u64::from(size.max(1)));
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}

/// A kernel, for all its launches.
pub struct Kernel {
    /// Its name, which may be mangled: reports have it as it was written.
    pub name: Arc<str>,
    /// Returns the file and line of the source for a line of the PTX. Reports may need it when the module is unloaded.
    pub source: Box<dyn Fn(u32) -> Option<String> + Send + Sync>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// The number of blocks in each direction.
    pub grid: [u32; 3],
    /// The number of threads of a block in each direction.
    pub block: [u32; 3],
}

impl Launch {
    /// Returns the place of a thread at a line of the PTX.
    pub(crate) fn spot(&self, line: u32, block: [u32; 3], thread: [u32; 3]) -> Spot {
        let number = |[x, y, z]: [u32; 3], sizes: [u32; 3]| {
            let row = u64::from(z) * u64::from(sizes[1]) + u64::from(y);
            row * u64::from(sizes[0]) + u64::from(x)
        };
        Spot::new(line, number(block, self.grid), number(thread, self.block) as u32)
    }
}

/// A function and a site, and the address and the sizes of a launch.
type OriginKey = (&'static str, Option<Site>, usize, [[u32; 3]; 2]);

/// How many origins are kept for work that is submitted later.
const ORIGINS_MAX: usize = 1 << 12;

/// Origins that work shares: a program of many launches makes most of them in few places.
#[derive(Debug, Default)]
pub(crate) struct Origins(HashMap<OriginKey, Arc<Origin>>);

impl Origins {
    /// Returns an equal origin that other work may have.
    pub(crate) fn share(&mut self, origin: Origin) -> Arc<Origin> {
        // Each is another call.
        if origin.elsewhere.is_some() {
            return Arc::new(origin);
        }
        let launch = origin.launch.as_ref();
        let (kernel, sizes) = launch
            .map_or_else(Default::default, |launch| (Arc::as_ptr(&launch.kernel).addr(), [launch.grid, launch.block]));
        let key = (origin.function, origin.site, kernel, sizes);
        // Those that work still needs live on.
        if self.0.len() >= ORIGINS_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        Arc::clone(self.0.entry(key).or_insert_with(|| Arc::new(origin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Arc<Kernel> {
        Arc::new(Kernel { name: "k".into(), source: Box::new(|_| None) })
    }

    fn launch(kernel: &Arc<Kernel>, blocks: u32, function: &'static str) -> Origin {
        let launch = Launch { kernel: Arc::clone(kernel), grid: [blocks, 1, 1], block: [32, 1, 1] };
        Origin { function, launch: Some(launch), site: None, elsewhere: None }
    }

    #[test]
    fn launches_in_one_place_share_their_origin() {
        let (mut origins, kernel) = (Origins::default(), kernel());
        let first = origins.share(launch(&kernel, 1, "launch"));
        assert!(Arc::ptr_eq(&first, &origins.share(launch(&kernel, 1, "launch"))));
        assert_eq!(origins.share(launch(&kernel, 2, "launch")).launch.as_ref().unwrap().grid, [2, 1, 1]);
        assert_eq!(origins.share(launch(&kernel, 1, "another")).function, "another");
        assert!(!Arc::ptr_eq(&first, &origins.share(launch(&super::tests::kernel(), 1, "launch"))));
    }

    #[test]
    fn launches_of_ever_other_sizes_and_kernels_leave_no_origins_behind() {
        let (mut origins, first) = (Origins::default(), kernel());
        let kept = origins.share(launch(&first, 1, "launch"));
        for blocks in 0..10_000 {
            origins.share(launch(&first, blocks, "launch"));
            origins.share(launch(&kernel(), 1, "launch"));
        }
        assert!(origins.0.len() <= ORIGINS_MAX);
        assert_eq!((kept.function, Arc::strong_count(&kept)), ("launch", 1));
    }
}
