// Package sqlite3 is empty on purpose: gorm's SQLite driver imports
// github.com/mattn/go-sqlite3 only for its side effect, comet opens SQLite
// through modernc.org/sqlite instead, and leaving the cgo driver out keeps the
// binary static and the first build half a minute shorter. See
// docs/adr/0003-pure-go-sqlite.md.
package sqlite3
