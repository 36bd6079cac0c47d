package sqlerr_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"comet/internal/errs"
	"comet/store/sqlerr"
)

func TestTranslate(t *testing.T) {
	t.Parallel()

	t.Run("PostgreSQLByItsSQLSTATE", func(t *testing.T) {
		t.Parallel()
		for state, want := range map[string]errs.Code{
			"23505": errs.Conflict, "23503": errs.Conflict, "23514": errs.Conflict,
			"40001": errs.Busy, "40P01": errs.Busy, "55P03": errs.Busy, "57014": errs.Busy,
			"08006": errs.Unavailable, "53300": errs.Unavailable, "57P01": errs.Unavailable, "58030": errs.Unavailable,
			"22021": errs.InvalidRequest,
			"42P01": errs.Internal, "": errs.Internal,
		} {
			err := sqlerr.Translate(fmt.Errorf("query: %w", &pgconn.PgError{Code: state, Message: "unique constraint"}))
			require.Equal(t, want, errs.CodeOf(err), "SQLSTATE %q", state)
		}
	})

	t.Run("TheDriversOwnErrors", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			err  error
			want errs.Code
		}{
			{sql.ErrNoRows, errs.NotFound},
			{gorm.ErrRecordNotFound, errs.NotFound},
			{driver.ErrBadConn, errs.Unavailable},
			{sql.ErrConnDone, errs.Unavailable},
			{&net.OpError{Op: "read", Err: errors.New("connection reset")}, errs.Unavailable},
			{&pgconn.ConnectError{}, errs.Unavailable},
			{pgconn.ErrConnClosed, errs.Unavailable},
			{io.ErrUnexpectedEOF, errs.Unavailable},
			{net.ErrClosed, errs.Unavailable},
		} {
			err := sqlerr.Translate(fmt.Errorf("query: %w", c.err))
			require.Equal(t, c.want, errs.CodeOf(err), "%T", c.err)
			if c.want == errs.Unavailable {
				require.Equal(t, "the database cannot be reached", errs.From(err).Detail)
			}
		}
	})

	t.Run("ContextsAndCodesPassThrough", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{nil, context.Canceled, context.DeadlineExceeded, errs.New(errs.AgentExists, "taken")} {
			require.Equal(t, err, sqlerr.Translate(err))
		}
	})
}
