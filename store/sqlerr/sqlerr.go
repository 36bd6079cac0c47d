// Package sqlerr converts errors of the database drivers to error codes by their numbers, never by
// their text.
package sqlerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
	"modernc.org/sqlite"

	"comet/internal/errs"
)

// SQLite result codes (https://sqlite.org/rescode.html).
const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteNoMem      = 7
	sqliteReadOnly   = 8
	sqliteIOErr      = 10
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteNotADB     = 26
	sqliteCheck      = 275
	sqliteForeignKey = 787
	sqlitePrimaryKey = 1555
	sqliteUnique     = 2067
)

// PostgreSQL SQLSTATEs (appendix A of its manual).
const (
	pgUniqueViolation      = "23505"
	pgForeignKeyViolation  = "23503"
	pgCheckViolation       = "23514"
	pgSerializationFailure = "40001"
	pgDeadlock             = "40P01"
	pgLockNotAvailable     = "55P03"
	pgQueryCanceled        = "57014"
	pgUntranslatable       = "22021" // text with a NUL or that is not UTF-8
	pgNULInJSON            = "22P05"
)

// Open returns errs.Unavailable with a remedy if err means that a database, a file or a server,
// cannot be opened, and nil for other errors.
func Open(err error, database string) error {
	var failed *sqlite.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &failed) && failed.Code()&0xff == sqliteCantOpen:
		return errs.Wrap(errs.Unavailable, err, "the database %s cannot be opened: check the owner and the permissions of the file and its directory, or choose another directory with --data", database)
	case errors.As(err, &failed) && failed.Code()&0xff == sqliteNotADB:
		return errs.Wrap(errs.Unavailable, err, "%s is not a database: restore a backup with \"comet restore FILE --force\", or choose another directory with --data", database)
	case errors.As(err, &connect):
		return errs.Wrap(errs.Unavailable, err, "%s cannot be reached at %s; check --database-url: %v", database, connect.Config.Host, connect.Unwrap())
	}
	return nil
}

// Translate turns a driver's error into one with a code, by its number:
//
//	no row                                  errs.NotFound
//	unique, foreign key or check violation  errs.Conflict
//	busy, locked, lock timeout              errs.Busy
//	disk full, I/O, lost connection         errs.Unavailable
//	text PostgreSQL cannot keep             errs.InvalidRequest
//
// The end of a context passes through, and so does an error that has a code.
func Translate(err error) error {
	var coded *errs.Error
	switch {
	case err == nil, errors.As(err, &coded),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, gorm.ErrRecordNotFound):
		return errs.Wrap(errs.NotFound, err, "no such row")
	}
	if code, detail := classify(err); code != "" {
		return errs.Wrap(code, err, "%s", detail)
	}
	return err
}

func classify(err error) (errs.Code, string) {
	const (
		conflict    = "the change collides with another row"
		busy        = "the database is busy, try again"
		unavailable = "the database is not available"
	)
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() {
		case sqlitePrimaryKey, sqliteUnique, sqliteForeignKey, sqliteCheck:
			return errs.Conflict, conflict
		}
		switch lite.Code() & 0xff { // the primary code of an extended one
		case sqliteBusy, sqliteLocked:
			return errs.Busy, busy
		case sqliteNoMem, sqliteReadOnly, sqliteIOErr, sqliteFull, sqliteCantOpen:
			return errs.Unavailable, unavailable
		}
		return "", ""
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case pgUniqueViolation, pgForeignKeyViolation, pgCheckViolation:
			return errs.Conflict, conflict
		case pgSerializationFailure, pgDeadlock, pgLockNotAvailable, pgQueryCanceled:
			return errs.Busy, busy
		case pgUntranslatable, pgNULInJSON:
			return errs.InvalidRequest, "a text holds a character that cannot be stored"
		}
		switch pg.Code[:min(2, len(pg.Code))] { // connection, resources, operator, system
		case "08", "53", "57", "58":
			return errs.Unavailable, unavailable
		}
		return "", ""
	}
	var connect *pgconn.ConnectError
	var netErr net.Error
	lost := func(is error) bool { return errors.Is(err, is) }
	if errors.As(err, &connect) || errors.As(err, &netErr) || slices.ContainsFunc([]error{driver.ErrBadConn, sql.ErrConnDone, pgconn.ErrConnClosed, io.ErrUnexpectedEOF, net.ErrClosed}, lost) {
		return errs.Unavailable, "the database cannot be reached"
	}
	return "", ""
}

// Retryable reports whether the database undid a transaction only because of the
// others that ran beside it.
func Retryable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == pgSerializationFailure || pg.Code == pgDeadlock)
}

// RolledBack reports whether an error of a commit means that the database has rolled back the transaction. After other
// errors it is unknown whether the transaction was committed.
func RolledBack(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback)
}
