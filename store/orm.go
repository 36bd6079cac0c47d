package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"comet/store/columns"
	"comet/store/seal"
	"comet/store/sqlerr"
	"comet/store/txconn"
)

// openORM opens gorm on a database.
func openORM(d gorm.Dialector, keys *seal.Keyring) (*gorm.DB, error) {
	orm, err := gorm.Open(d, &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		NamingStrategy:         columns.Names{},
		Logger:                 logger.Discard,
	})
	if err == nil {
		err = registerCallbacks(orm, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("open the object mapper: %w", err)
	}
	return orm, nil
}

// registerCallbacks has gorm store columns like every other statement and return errors with codes.
// An error of gorm while it reads rows also ends the transaction, because its connection does not
// see that error.
func registerCallbacks(orm *gorm.DB, keys *seal.Keyring) error {
	var adapted sync.Map // by schema
	begin := func(db *gorm.DB) {
		if s := db.Statement.Schema; s != nil {
			once, _ := adapted.LoadOrStore(s, new(sync.Once))
			once.(*sync.Once).Do(func() { columns.Adapt(s, keys) })
		}
	}
	finish := func(db *gorm.DB) {
		c, ok := db.Statement.ConnPool.(*txconn.Conn)
		if ok && db.Error != nil && !errors.Is(db.Error, gorm.ErrRecordNotFound) {
			_ = c.Fail(db.Error)
		}
		db.Error = sqlerr.Translate(db.Error)
	}
	cb := orm.Callback()
	return errors.Join(
		cb.Create().Before("*").Register("comet:columns", begin), cb.Create().Register("comet:errors", finish),
		cb.Query().Before("*").Register("comet:columns", begin), cb.Query().Register("comet:errors", finish),
		cb.Update().Before("*").Register("comet:columns", begin), cb.Update().Register("comet:errors", finish),
		cb.Delete().Before("*").Register("comet:columns", begin), cb.Delete().Register("comet:errors", finish),
	)
}

// db returns gorm on the reader's connection.
func (r reader) db() *gorm.DB {
	db := r.store.orm.Session(&gorm.Session{NewDB: true, Context: r.ctx, SkipHooks: true})
	db.Statement.ConnPool = r.conn
	return db
}

// readPool is the read pool with its prepared statements. It implements gorm.ConnPool.
type readPool struct {
	*sql.DB
	store *Store
}

// QueryContext implements gorm.ConnPool.
func (p readPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := errors.Join(p.store.usable(), columns.Values(args)); err != nil {
		return nil, err
	}
	st, err := p.store.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return p.store.runPrepared(ctx, st, query, args)
}

// forUpdate locks the rows that a statement reads. gorm leaves locks out on SQLite.
func forUpdate(db *gorm.DB) *gorm.DB {
	return db.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
}
