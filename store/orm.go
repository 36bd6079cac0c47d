package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"comet/internal/errs"
	"comet/models"
)

// A row type of gorm has the fields of its model and, in tags, what gorm has to know of the columns.
// Go converts the one into the other without a copy by hand, and the compiler reports a difference.

// openORM opens gorm on a database.
func openORM(d gorm.Dialector) (*gorm.DB, error) {
	schema.RegisterSerializer("stored", storedColumn{})
	orm, err := gorm.Open(d, &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		Logger:                 logger.Discard,
	})
	if err == nil {
		err = registerErrors(orm)
	}
	if err != nil {
		return nil, fmt.Errorf("open the object mapper: %w", err)
	}
	return orm, nil
}

// registerErrors has gorm return errors with codes. An error that gorm met while it read rows ends
// the transaction, whose connection did not see it.
func registerErrors(orm *gorm.DB) error {
	finish := func(db *gorm.DB) {
		c, ok := db.Statement.ConnPool.(*txConn)
		if ok && db.Error != nil && !errors.Is(db.Error, gorm.ErrRecordNotFound) {
			_ = c.fail(db.Error)
		}
		db.Error = translate(db.Error)
	}
	cb := orm.Callback()
	return errors.Join(
		cb.Create().Register("comet:errors", finish),
		cb.Query().Register("comet:errors", finish),
		cb.Update().Register("comet:errors", finish),
		cb.Delete().Register("comet:errors", finish),
	)
}

// db returns gorm on the reader's connection. Its time stamps are the callers' own.
func (r reader) db() *gorm.DB {
	db := r.store.orm.Session(&gorm.Session{NewDB: true, Context: r.ctx, SkipHooks: true})
	db.Statement.ConnPool = r.conn
	return db
}

// readPool is the read pool with its prepared statements. It implements gorm.ConnPool.
type readPool struct{ *Store }

// PrepareContext implements gorm.ConnPool; the caller closes the statement.
func (p readPool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return p.reads.PrepareContext(ctx, query)
}

// ExecContext implements gorm.ConnPool.
func (p readPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.reads.ExecContext(ctx, query, args...)
}

// QueryContext implements gorm.ConnPool.
func (p readPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	st, err := p.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return p.runPrepared(ctx, st, query, args)
}

// QueryRowContext implements gorm.ConnPool.
func (p readPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.reads.QueryRowContext(ctx, query, args...)
}

// storedColumn is the serializer "stored": how columns hold the types that both databases do not
// store in the same way. Times are microseconds, the zero time is 0. A state is its index, a hash its
// bytes, json.RawMessage its text, and any other type JSON.
type storedColumn struct{}

// Scan implements schema.SerializerInterface.
func (storedColumn) Scan(ctx context.Context, field *schema.Field, row reflect.Value, v any) error {
	switch into := field.ReflectValueOf(ctx, row).Addr().Interface().(type) {
	case *time.Time:
		*into = orZero(v)
	case **time.Time:
		*into = momentOf(v)
	case *json.RawMessage:
		return scanJSON{into}.Scan(v)
	case *models.SessionState:
		*into = sessionStates()[whole(v)]
	case *[32]byte:
		hash, _ := v.([]byte)
		copy(into[:], hash)
	default:
		text, _ := v.(string)
		return json.Unmarshal([]byte(text), into)
	}
	return nil
}

// Value implements schema.SerializerInterface.
func (storedColumn) Value(_ context.Context, _ *schema.Field, _ reflect.Value, value any) (any, error) {
	switch v := value.(type) {
	case time.Time:
		return orNone(v), nil
	case *time.Time:
		return nullable(microsPtr(v)), nil
	case json.RawMessage:
		return string(v), nil
	case models.SessionState:
		return int64(slices.Index(sessionStates(), v)), nil
	case [32]byte:
		return v[:], nil
	}
	text, err := json.Marshal(value)
	if string(text) == "null" { // no slice
		text = []byte("[]")
	}
	return string(text), err
}

// convert returns the models of rows.
func convert[R, M any](rows []R, model func(R) M) []M {
	out := make([]M, len(rows))
	for i, r := range rows {
		out[i] = model(r)
	}
	return out
}

// forUpdate locks the rows that a statement reads. gorm leaves locks out on SQLite.
func forUpdate(db *gorm.DB) *gorm.DB {
	return db.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
}

// deleteOne returns errs.NotFound with a detail for a statement that deleted no row.
func deleteOne(db *gorm.DB, format string, args ...any) error {
	if db.Error == nil && db.RowsAffected == 0 {
		return errs.New(errs.NotFound, format, args...)
	}
	return db.Error
}
