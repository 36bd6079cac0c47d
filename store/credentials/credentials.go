// Package credentials executes the statements on the OAuth credentials of upstreams, which are sealed. One replica
// at a time refreshes the tokens of an upstream, because a refresh token may be valid once.
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

// Load returns the credentials of an upstream, the zero row if there are none.
func Load(from store.Source, upstreamID string) (Row, error) {
	row, err := store.Row[Row](from, "SELECT version, sealed FROM upstream_credentials WHERE upstream_id = ?", upstreamID)
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return row, err
}

// Create stores the credentials of an upstream and replaces earlier ones.
func Create(tx *store.Tx, upstreamID string, sealed []byte) error {
	_, err := tx.Exec(`INSERT INTO upstream_credentials (upstream_id, version, sealed, lease_until) VALUES (?, 1, ?, 0)
		ON CONFLICT (upstream_id) DO UPDATE SET version = upstream_credentials.version + 1, sealed = excluded.sealed, lease_until = 0`, upstreamID, sealed)
	return err
}

// Lease reserves the refresh of credentials with a version until a time, and reports whether it succeeded.
func Lease(tx *store.Tx, upstreamID string, version int64, until time.Time) (bool, error) {
	n, err := tx.Exec("UPDATE upstream_credentials SET lease_until = ? WHERE upstream_id = ? AND version = ? AND lease_until <= ?",
		until, upstreamID, version, tx.Now())
	return n > 0, err
}

// Release replaces the credentials of an upstream if they have a version, and ends a lease.
func Release(tx *store.Tx, upstreamID string, version int64, sealed []byte) error {
	_, err := tx.Exec("UPDATE upstream_credentials SET lease_until = 0, sealed = ?, version = version + 1 WHERE upstream_id = ? AND version = ?", sealed, upstreamID, version)
	return err
}

// Delete deletes the credentials of an upstream and its authorization in progress.
func Delete(tx *store.Tx, upstreamID string) error {
	_, err := tx.Exec("DELETE FROM upstream_credentials WHERE upstream_id = ?", upstreamID)
	if err == nil {
		_, err = tx.Exec("DELETE FROM upstream_authorizations WHERE upstream_id = ?", upstreamID)
	}
	return err
}

// Pending is an authorization in progress.
type Pending struct {
	UpstreamID string
	Sealed     []byte
	Until      time.Time
}

// Begin stores an authorization in progress and replaces an earlier one of the same upstream. state is the
// digest of its parameter state.
func Begin(tx *store.Tx, state string, p Pending) error {
	_, err := tx.Exec(`INSERT INTO upstream_authorizations (state, upstream_id, sealed, until) VALUES (?, ?, ?, ?)
		ON CONFLICT (upstream_id) DO UPDATE SET state = excluded.state, sealed = excluded.sealed, until = excluded.until`, state, p.UpstreamID, p.Sealed, p.Until)
	return err
}

// End deletes the authorization in progress with a state and returns it, or errs.NotFound.
func End(tx *store.Tx, state string) (Pending, error) {
	return store.Row[Pending](tx, "DELETE FROM upstream_authorizations WHERE state = ? RETURNING upstream_id, sealed, until", state)
}
