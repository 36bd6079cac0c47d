package store

import (
	"context"
	"database/sql"
	"fmt"

	gormsqlite "gorm.io/driver/sqlite"

	"comet/store/pinned"
	"comet/store/sqlitefile"
)

// openSQLitePool opens connections to a database whose file sqlitefile.Create has created.
func openSQLitePool(opts Options, size int, pragmas ...string) (*sql.DB, error) {
	connector, err := sqlitefile.Connector(opts.Dir, pragmas...)
	if err != nil {
		return nil, err
	}
	db := opts.openPool(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

func (s *Store) openSQLite(ctx context.Context, opts Options) error {
	s.engine = sqliteEngine()
	if err := sqlitefile.Create(opts.Dir); err != nil {
		return err
	}
	writeDB, err := openSQLitePool(opts, 1)
	if err != nil {
		return err
	}
	conn, err := pinned.New(ctx, writeDB)
	if err != nil {
		_ = writeDB.Close()
		return fmt.Errorf("open %s: %w", sqlitefile.Path(opts.Dir), err)
	}
	if s.reads, err = openSQLitePool(opts, opts.ReadConnections, "query_only(1)", "temp_store(file)"); err != nil {
		return err
	}
	if s.orm, err = openORM(gormsqlite.New(gormsqlite.Config{DriverName: "sqlite", Conn: readPool{s.reads, s}}), opts.Keys); err != nil {
		return err
	}
	if err := s.loadMemory(s.on(ctx)); err != nil {
		return err
	}
	s.writes = newGroupWriter(s, conn)
	return nil
}
