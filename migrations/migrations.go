// Package migrations embeds the SQL files that make and change comet's tables,
// one set a database. A file is never edited once it has been released; a change
// is a new file of the same number in both folders.
package migrations

import (
	"embed"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed sqlite/*.sql
var sqliteFiles embed.FS

//go:embed postgres/*.sql
var postgresFiles embed.FS

// SQLite returns the migrations for SQLite.
func SQLite() fs.FS { return sub(sqliteFiles, "sqlite") }

// Postgres returns the migrations for PostgreSQL.
func Postgres() fs.FS { return sub(postgresFiles, "postgres") }

func sub(files embed.FS, dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return f
}

// Newest returns the number of the newest migration for a database, "sqlite" or
// "postgres".
func Newest(database string) int64 {
	files := SQLite()
	if database == "postgres" {
		files = Postgres()
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil || len(entries) == 0 {
		return 0
	}
	number, _, _ := strings.Cut(entries[len(entries)-1].Name(), "_") // sorted by name
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		panic(err) // a file that is not NNNN_name.sql
	}
	return n
}
