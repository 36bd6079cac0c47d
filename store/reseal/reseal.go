// Package reseal checks when a server starts that its keys open the secrets of the database, and seals
// those that are plain or sealed with an earlier key.
package reseal

import (
	"context"

	"comet/store"
	"comet/store/seal"
)

// Start seals the secrets of the database with the first key and returns how many it has sealed. A
// database without a key gets that key, and save is called before this is committed. It returns
// errs.Conflict if the database has another key.
func Start(ctx context.Context, s *store.Store, keys *seal.Keyring, save func() error) (sealed int64, err error) {
	err = s.Write(ctx, func(tx *store.Tx) error {
		purpose := seal.Columns()[0].Purpose()
		n, err := tx.Exec("INSERT INTO secret_keys (id, sealed) VALUES ('current', ?) ON CONFLICT DO NOTHING", keys.Seal(purpose, nil))
		if err == nil && n == 1 {
			return save()
		}
		var value []byte
		if err == nil {
			value, err = store.Row[[]byte](tx, "SELECT sealed FROM secret_keys")
		}
		if err == nil {
			_, err = keys.Open(purpose, value)
		}
		return err
	})
	for _, c := range seal.Columns() {
		if err != nil {
			return sealed, err
		}
		var n int64
		n, err = s.Repeat(ctx, func(tx *store.Tx, limit int) (int64, error) { return column(s, tx, keys, c, limit) })
		sealed += n
	}
	return sealed, err
}

// column seals up to limit values of a column that are not sealed with the first key, and returns their number.
func column(s *store.Store, tx *store.Tx, keys *seal.Keyring, c seal.Column, limit int) (int64, error) {
	type secret struct {
		Key   string
		Value []byte
	}
	rows, err := store.Rows[secret](tx, "SELECT "+c.Key+", "+c.Name+" FROM "+c.Table+" WHERE "+c.Name+" <> '' AND substr("+c.Name+", 1, ?) <> ? LIMIT ?",
		len(keys.Prefix()), keys.Prefix(), limit)
	if err == nil && len(rows) > 0 && s.Alone() { // SQLite overwrites the former values, from now on
		_, err = tx.Exec("PRAGMA secure_delete = ON")
	}
	for _, row := range rows {
		plain, err := keys.Open(c.Purpose(), row.Value)
		if err == nil { // another replica may have changed it
			_, err = tx.Exec("UPDATE "+c.Table+" SET "+c.Name+" = ? WHERE "+c.Key+" = ? AND "+c.Name+" = ?", keys.Seal(c.Purpose(), plain), row.Key, row.Value)
		}
		if err != nil {
			return 0, err
		}
	}
	return int64(len(rows)), err
}
