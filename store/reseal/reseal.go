// Package reseal checks when a server starts that its keys open the secrets of the database, and seals
// those that are plain or sealed with an earlier key.
package reseal

import (
	"context"
	"strings"

	"comet/store"
	"comet/store/seal"
)

// Start seals the secrets of the database with the first key and returns how many it has sealed. A
// database without a key gets that key, and save is called before this is committed. It returns
// errs.Conflict if the database has another key.
func Start(ctx context.Context, s *store.Store, keys *seal.Keyring, save func() error) (sealed int64, err error) {
	err = s.Write(ctx, func(tx *store.Tx) error {
		const purpose = "secret_keys.sealed"
		n, err := tx.Exec("INSERT INTO secret_keys (id, sealed) VALUES ('current', ?) ON CONFLICT DO NOTHING", keys.Seal(purpose, []byte("current")))
		if err == nil && n == 1 {
			return save()
		}
		value, err := store.Row[[]byte](tx, "SELECT sealed FROM secret_keys")
		if err == nil {
			_, err = keys.Open(purpose, value)
		}
		return err
	})
	for purpose, key := range seal.Columns() {
		var n int64
		if err == nil {
			n, err = s.Repeat(ctx, func(tx *store.Tx, limit int) (int64, error) { return column(s, tx, keys, purpose, key, limit) })
		}
		sealed += n
	}
	return sealed, err
}

// column seals up to limit values of a column that are not sealed with the first key, and returns their number.
func column(s *store.Store, tx *store.Tx, keys *seal.Keyring, purpose, key string, limit int) (int64, error) {
	type secret struct {
		Key   string
		Value []byte
	}
	table, name, _ := strings.Cut(purpose, ".")
	rows, err := store.Rows[secret](tx, "SELECT "+key+", "+name+" FROM "+table+" WHERE "+name+" <> '' AND substr("+name+", 1, ?) <> ? LIMIT ?",
		len(keys.Prefix()), keys.Prefix(), limit)
	if len(rows) > 0 && s.Alone() { // SQLite overwrites the former values, from now on
		_, err = tx.Exec("PRAGMA secure_delete = ON")
	}
	for _, row := range rows {
		var plain []byte
		if plain, err = keys.Open(purpose, row.Value); err == nil { // another replica may have changed it
			_, err = tx.Exec("UPDATE "+table+" SET "+name+" = ? WHERE "+key+" = ? AND "+name+" = ?", keys.Seal(purpose, plain), row.Key, row.Value)
		}
		if err != nil {
			break
		}
	}
	return int64(len(rows)), err
}
