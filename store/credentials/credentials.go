// Package credentials has the statements on the OAuth credentials of upstreams. They are sealed; the
// tokens of an upstream are refreshed by one replica at a time, because a refresh token may be valid once.
package credentials

import (
	"time"

	"comet/internal/errs"
	"comet/store"
)

// Row is the credentials of an upstream. Their version, from 1, changes with them.
type Row struct {
	Version int64
	Sealed  []byte
}

// Load returns the credentials of an upstream, a row without any if there are none.
func Load(from store.Source, upstreamID string) (Row, error) {
	row, err := store.Row[Row](from, "SELECT version, credentials FROM upstream_credentials WHERE upstream_id = ?", upstreamID)
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return row, err
}

// Begin stores an authorization in progress, which replaces the upstream's earlier one. state is the hash
// of its parameter state.
func Begin(tx *store.Tx, upstreamID, state string, sealed []byte, until time.Time) error {
	_, err := tx.Exec(`INSERT INTO upstream_credentials (upstream_id, version, credentials, lease_until, pending, pending_state, pending_until)
		VALUES (?, 0, ?, 0, ?, ?, ?) ON CONFLICT (upstream_id) DO UPDATE SET
		pending = excluded.pending, pending_state = excluded.pending_state, pending_until = excluded.pending_until`,
		upstreamID, []byte{}, sealed, state, until)
	return err
}

// Pending is an authorization in progress.
type Pending struct {
	UpstreamID string
	Sealed     []byte
	Until      time.Time
}

// Find returns the authorization in progress with a state, or errs.NotFound.
func Find(from store.Source, state string) (Pending, error) {
	return store.Row[Pending](from, "SELECT upstream_id, pending, pending_until FROM upstream_credentials WHERE pending_state = ?", state)
}

// End ends the authorization in progress with a state and reports whether there was one.
func End(tx *store.Tx, state string) (bool, error) {
	n, err := tx.Exec("UPDATE upstream_credentials SET pending = ?, pending_state = '', pending_until = 0 WHERE pending_state = ?", []byte{}, state)
	return n > 0, err
}

// Save replaces the credentials of an upstream, if they still have a version other than 0, and ends the
// lease. It returns the new version, or errs.NotFound.
func Save(tx *store.Tx, upstreamID string, version int64, sealed []byte) (int64, error) {
	return store.Row[int64](tx, `UPDATE upstream_credentials SET credentials = ?, version = version + 1, lease_until = 0
		WHERE upstream_id = ? AND (version = ? OR 0 = ?) RETURNING version`, sealed, upstreamID, version, version)
}

// Lease lets the caller refresh the credentials of an upstream until a time, and reports whether they
// still have the version and no replica refreshes them.
func Lease(tx *store.Tx, upstreamID string, version int64, until time.Time) (bool, error) {
	n, err := tx.Exec("UPDATE upstream_credentials SET lease_until = ? WHERE upstream_id = ? AND version = ? AND lease_until <= ?",
		until, upstreamID, version, tx.Now())
	return n > 0, err
}

// Release ends a lease of credentials that have not changed.
func Release(tx *store.Tx, upstreamID string, version int64) error {
	_, err := tx.Exec("UPDATE upstream_credentials SET lease_until = 0 WHERE upstream_id = ? AND version = ?", upstreamID, version)
	return err
}

// Delete deletes the credentials of an upstream.
func Delete(tx *store.Tx, upstreamID string) error {
	_, err := tx.Exec("DELETE FROM upstream_credentials WHERE upstream_id = ?", upstreamID)
	return err
}
