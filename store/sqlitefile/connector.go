package sqlitefile

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"modernc.org/sqlite" // the pure Go driver
)

// Connector returns a connector to the database of a data directory, whose file Create has created,
// with comet's settings and more pragmas.
func Connector(dir string, pragmas ...string) (driver.Connector, error) {
	if err := registerFunctions(); err != nil {
		return nil, err
	}
	q := url.Values{"_txlock": {"immediate"}, "_time_format": {"sqlite"}, "_timezone": {"UTC"}}
	for _, p := range append([]string{
		"busy_timeout(10000)",
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(1)",
		"mmap_size(268435456)",
		"cache_size(-32768)",
		"temp_store(memory)",
		"wal_autocheckpoint(4000)",
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	connector, err := sqlite.NewConnector(URI(Path(dir), q))
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	return connector, nil
}

// registerFunctions registers the SQL functions of migrations, once for all connections: sha256, as
// PostgreSQL has it, and base64.
//
//nolint:gochecknoglobals // runs once in a process
var registerFunctions = sync.OnceValue(func() error {
	return errors.Join(sqlite.RegisterDeterministicScalarFunction("sha256", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		sum := sha256.Sum256(fmt.Append(nil, args[0]))
		return sum[:], nil
	}), sqlite.RegisterDeterministicScalarFunction("base64", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		raw, _ := args[0].([]byte)
		return base64.StdEncoding.EncodeToString(raw), nil
	}))
})
