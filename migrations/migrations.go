// Package migrations embeds the SQL files that make and change comet's tables,
// one set a database. A file is never edited once it has been released; a change
// is a new file of the same number in both folders.
package migrations

import (
	"embed"
	"io/fs"
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
