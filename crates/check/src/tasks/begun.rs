//! Tasks that have begun, garbage-collected when nothing refers to them.
//!
//! Access records, blocks and running work refer to tasks by numbers, which are never reused. From time to time all these references
//! are marked, and completed tasks without a reference are dropped.

use std::collections::HashSet;

use super::task::{Task, TaskId};

/// With so many tasks since the last time, it is worth looking which ones are still named.
const TASKS_MAX: usize = 1 << 18;

/// The last tasks are never dropped: calls may be in them, or may just have read their numbers.
const TASKS_KEPT: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Begun {
    /// Earlier tasks that were named when it was looked last, by their numbers.
    named: Vec<(TaskId, Task)>,
    /// The tasks since then. The first one has the number `first`.
    recent: Vec<Task>,
    first: u64,
    /// With so many of `recent`, it is worth looking again, and at least so many.
    limit: usize,
    limit_min: usize,
}

impl Default for Begun {
    fn default() -> Self {
        Self { named: Vec::new(), recent: Vec::new(), first: 1, limit: TASKS_MAX, limit_min: TASKS_MAX }
    }
}

/// Which tasks are to be kept.
#[derive(Debug)]
pub(crate) struct NamedTasks {
    /// The number of the first of `recent`.
    first: u64,
    /// A bit for each task that may be dropped, in words, from `first` on: whether it is kept.
    recent: Vec<u64>,
    /// The first task of which nothing is known: all later ones are kept.
    end: u64,
    earlier: HashSet<u64>,
    last: TaskId,
}

impl NamedTasks {
    /// Notes that something names a task.
    #[inline]
    pub(crate) fn add(&mut self, task: TaskId) {
        // The records of neighbors name the same task.
        if task == self.last || task.0 >= self.end {
            return;
        }
        self.last = task;
        match task.0.checked_sub(self.first) {
            Some(index) => self.recent[(index / 64) as usize] |= 1 << (index % 64),
            None => _ = self.earlier.insert(task.0),
        }
    }

    /// Returns whether a task is kept.
    pub(crate) fn contains(&self, task: TaskId) -> bool {
        task.0 >= self.end
            || match task.0.checked_sub(self.first) {
                Some(index) => self.recent[(index / 64) as usize] >> (index % 64) & 1 != 0,
                None => self.earlier.contains(&task.0),
            }
    }
}

impl Begun {
    /// Adds a task, and returns its number.
    pub(super) fn add(&mut self, task: Task) -> TaskId {
        let id = TaskId(self.first + self.recent.len() as u64);
        self.recent.push(task);
        id
    }

    /// Returns a task. `None` if it was dropped.
    #[inline]
    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        match id.0.checked_sub(self.first) {
            Some(index) => self.recent.get(index as usize),
            None => {
                let index = self.named.binary_search_by_key(&id.0, |(known, _)| known.0).ok()?;
                Some(&self.named[index].1)
            }
        }
    }

    /// Returns whether it is worth looking which tasks are still named.
    pub(super) fn is_full(&self) -> bool {
        self.recent.len() >= self.limit
    }

    /// Starts to look which tasks are named. Those for which `is_over` does not hold are kept.
    pub(super) fn start(&self, is_over: impl Fn(&Task) -> bool) -> NamedTasks {
        let count = self.recent.len().saturating_sub(TASKS_KEPT);
        let (first, end) = (self.first, self.first + count as u64);
        let recent = vec![0; count.div_ceil(64)];
        let mut named = NamedTasks { first, recent, end, earlier: HashSet::new(), last: TaskId(0) };
        let recent = self.recent[..count].iter().enumerate().map(|(index, task)| (TaskId(first + index as u64), task));
        let all = self.named.iter().map(|(id, task)| (*id, task)).chain(recent);
        all.filter(|(_, task)| !is_over(task)).for_each(|(id, _)| named.add(id));
        named
    }

    /// Drops the tasks that are not named. It is looked again when there are more than `least` others.
    pub(super) fn retain(&mut self, named: &NamedTasks, least: usize) {
        self.named.retain(|(id, _)| named.contains(*id));
        let left = self.recent.split_off((named.end - self.first) as usize);
        let passed = std::mem::replace(&mut self.recent, left);
        let first = self.first;
        let passed = passed.into_iter().enumerate().map(|(index, task)| (TaskId(first + index as u64), task));
        self.named.extend(passed.filter(|(id, _)| named.contains(*id)));
        self.first = named.end;
        self.limit = self.limit_min.max(least).max(2 * self.named.len());
    }

    #[cfg(test)]
    pub(super) fn set_limit(&mut self, limit: usize) {
        (self.limit, self.limit_min) = (limit, limit);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.named.len() + self.recent.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Task> {
        self.named.iter().map(|(_, task)| task).chain(&self.recent)
    }
}
