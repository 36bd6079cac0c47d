package reseal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/credentials"
	"comet/store/remotes"
	"comet/store/reseal"
	"comet/store/seal"
	"comet/store/storetest"
)

// secrets are the texts that must not be in the database.
const (
	secret, signingKey, earlierSecret = "webhook-secret-0123456789", "webhook-signing-key-0123456789ab", "earlier-webhook-secret-4567"
	headerValue, pushSecret, hmacKey  = "Bearer receiver-0123456789", "push-secret-0123456789", "hmac-key-0123456789"
)

func keyring(t *testing.T, keys ...string) *seal.Keyring {
	t.Helper()
	ring, err := seal.Parse(strings.Join(keys, "\n"))
	require.NoError(t, err)
	return ring
}

// reopen opens the database of a test with keys.
func reopen(t *testing.T, db *storetest.DB, keys *seal.Keyring) *store.Store {
	t.Helper()
	opts := db.Options
	opts.Keys = keys
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func start(t *testing.T, s *store.Store, keys *seal.Keyring) (sealed int64) {
	t.Helper()
	sealed, err := reseal.Start(t.Context(), s, keys, func() error { return nil })
	require.NoError(t, err)
	return sealed
}

// write stores a secret of every kind and returns their rows.
func write(t *testing.T, s *store.Store) (models.Webhook, models.PushTarget, models.AgentKey) {
	t.Helper()
	now := s.Now()
	hook := models.Webhook{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", URL: "https://a.example", Events: []models.EventType{"agent.created"}, Ordering: models.OrderingNone, Enabled: true,
		Headers: map[string]string{"Authorization": headerValue}, RetrySeconds: []int{1}, ConfinedTo: []string{}, Version: 1, CreatedAt: now, UpdatedAt: now,
		Keys: models.WebhookKeys{Secret: []byte(secret), SigningKey: []byte(signingKey), PreviousKeys: []models.PreviousKeys{{Secret: []byte(earlierSecret), Until: now}}},
	}
	target := models.PushTarget{AgentID: "nova", URL: "https://b.example", Protocol: "envelope", Concurrency: 1, Secret: pushSecret}
	key := models.AgentKey{AgentID: "nova", KeyID: "1", Algorithm: "hmac-sha256", Secret: hmacKey, CreatedAt: now}
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
		public := models.AgentKey{AgentID: "nova", KeyID: "2", Algorithm: "ed25519", PublicKey: "AAAA", CreatedAt: now}
		return errors.Join(
			tx.Agents().Insert(models.Agent{ID: "nova", Name: "nova", FrequencyHz: 999, IsActive: true, Version: 1, BudgetScope: "own"}),
			tx.Webhooks().Insert(hook), tx.Workers().SavePushTarget(&target), tx.Tokens().SaveAgentKey(key), tx.Tokens().SaveAgentKey(public))
	}))
	return hook, target, key
}

// requireSecrets reads the secrets that write has stored.
func requireSecrets(t *testing.T, s *store.Store, hook models.Webhook, target models.PushTarget, key models.AgentKey) {
	t.Helper()
	gotHook, err := s.Webhooks(t.Context()).Get(hook.ID)
	require.NoError(t, err)
	require.Equal(t, hook, gotHook)
	hooks, err := s.Webhooks(t.Context()).List(models.System(), "", 10)
	require.NoError(t, err)
	require.Equal(t, []models.Webhook{hook}, hooks)
	gotTarget, err := s.Workers(t.Context()).PushTarget("nova")
	require.NoError(t, err)
	require.Equal(t, target, gotTarget)
	gotKey, err := s.Tokens(t.Context()).AgentKey("nova", "hmac-sha256")
	require.NoError(t, err)
	require.Equal(t, key, gotKey)
	public, err := s.Tokens(t.Context()).AgentKey("nova", "ed25519")
	require.NoError(t, err)
	require.Empty(t, public.Secret)
}

// stored returns everything in the sealed columns, and on SQLite the database files.
func stored(t *testing.T, db *storetest.DB, s *store.Store) string {
	t.Helper()
	var all []byte
	for purpose := range seal.Columns() {
		table, name, _ := strings.Cut(purpose, ".")
		values, err := store.Rows[[]byte](s.Reads(t.Context()), "SELECT "+name+" FROM "+table+" WHERE "+name+" IS NOT NULL")
		require.NoError(t, err)
		all = append(all, bytes.Join(values, []byte("\n"))...)
	}
	return string(append(all, files(t, db)...))
}

func files(t *testing.T, db *storetest.DB) (all []byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(db.Options.Dir, "*"))
	require.NoError(t, err)
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		all = append(all, content...)
	}
	return all
}

func requireNoSecret(t *testing.T, content string) {
	t.Helper()
	for _, text := range []string{secret, signingKey, earlierSecret, headerValue, pushSecret, hmacKey} {
		require.False(t, strings.Contains(content, text), "the database contains %s", text)                                               //nolint:testifylint // the content is long
		require.False(t, strings.Contains(content, base64.RawStdEncoding.EncodeToString([]byte(text))), "the database contains %s", text) //nolint:testifylint // the content is long
	}
}

func TestSecretsAreStoredEncrypted(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		keys := keyring(t, seal.NewKey())
		s := reopen(t, db, keys)
		require.Zero(t, start(t, s, keys))
		hook, target, key := write(t, s)
		requireSecrets(t, s, hook, target, key)
		requireNoSecret(t, stored(t, db, s))

		hook.Headers["X-Tenant"], hook.Keys.SigningKey = "tenant", nil
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
			since := s.Now()
			return errors.Join(tx.Webhooks().Save(hook), tx.Webhooks().SaveFailing(hook.ID, &since, 1), tx.Webhooks().SaveFailing(hook.ID, nil, 0))
		}))
		requireSecrets(t, s, hook, target, key)
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
			leased, ok, err := tx.Webhooks().Lease(hook.ID, "me", s.Now().Add(time.Minute))
			require.True(t, ok)
			require.Equal(t, hook.Keys, leased.Keys)
			dropped, other := tx.Workers().DeletePushTarget("nova", "another")
			require.False(t, dropped)
			dropped, own := tx.Workers().DeletePushTarget("nova", pushSecret)
			require.True(t, dropped)
			return errors.Join(err, other, own)
		}))
		requireNoSecret(t, stored(t, db, s))
		require.Zero(t, start(t, s, keys), "everything has the current key")
	})
}

func TestPlainSecretsAreEncryptedAtStart(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		hook, target, key := write(t, db.Store)
		require.True(t, strings.Contains(stored(t, db, db.Store), secret), "an earlier program has stored it") //nolint:testifylint // the content is long
		keys := keyring(t, seal.NewKey())
		s := reopen(t, db, keys)
		requireSecrets(t, s, hook, target, key)
		require.EqualValues(t, 6, start(t, s, keys))
		requireSecrets(t, s, hook, target, key)
		require.Zero(t, start(t, s, keys))
		for _, one := range []*store.Store{s, db.Store} { // the last one empties the log of SQLite
			require.NoError(t, one.Close())
		}
		requireNoSecret(t, string(files(t, db)))
		requireNoSecret(t, stored(t, db, reopen(t, db, keys)))
	})
}

func TestManyPlainSecretsAreEncryptedInBatches(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			type pushTarget struct {
				AgentID, URL, Protocol string
				Concurrency            int
				Secret                 []byte
				Owner                  string
				CreatedAt, UpdatedAt   int64
			}
			agents, targets := []models.Agent{}, []pushTarget{}
			for i := range 2500 {
				id := "agent-" + strings.Repeat("x", i/100) + string(rune('a'+i%100/10)) + string(rune('a'+i%10))
				agents = append(agents, models.Agent{ID: id, Name: id, Level: 1, FrequencyHz: 888, SphereID: new(1), ParentID: new("nova"), TokenBudget: new(int64(1)), IsActive: true, Version: 1, BudgetScope: "own"})
				targets = append(targets, pushTarget{AgentID: id, URL: "https://b.example", Protocol: "envelope", Concurrency: 1, Secret: []byte(pushSecret)})
			}
			err := tx.Agents().Insert(models.Agent{ID: "nova", Name: "nova", FrequencyHz: 999, IsActive: true, Version: 1, BudgetScope: "own"})
			for _, a := range agents {
				err = errors.Join(err, tx.Agents().Insert(a))
			}
			return errors.Join(err, store.Insert(tx, "", targets...))
		}))
		keys := keyring(t, seal.NewKey())
		replicas := []*store.Store{reopen(t, db, keys)}
		if !replicas[0].Alone() {
			replicas = append(replicas, reopen(t, db, keys))
		}
		var wait sync.WaitGroup
		for _, s := range replicas {
			wait.Go(func() {
				_, err := reseal.Start(t.Context(), s, keys, func() error { return nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		targets, err := replicas[0].Workers(t.Context()).PushTargets()
		require.NoError(t, err)
		require.Len(t, targets, 2500)
		for _, target := range targets {
			require.Equal(t, pushSecret, target.Secret)
		}
		require.Zero(t, start(t, replicas[0], keys))
	})
}

func TestRotation(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		before, after := seal.NewKey(), seal.NewKey()
		old, both, last := keyring(t, before), keyring(t, after, before), keyring(t, after)
		s := reopen(t, db, old)
		start(t, s, old)
		hook, target, key := write(t, s)

		_, err := reseal.Start(t.Context(), reopen(t, db, last), last, func() error { return errors.New("a database with a key gets no other one") })
		require.True(t, errs.Is(err, errs.Conflict), err)
		require.ErrorContains(t, err, "is encrypted with the key ")
		require.ErrorContains(t, err, "--secret-key-file (COMET_SECRET_KEY_FILE); all replicas use the same file")
		require.Zero(t, start(t, s, old), "nothing has changed")

		s = reopen(t, db, both)
		requireSecrets(t, s, hook, target, key)
		require.EqualValues(t, 7, start(t, s, both), "with the row of the database's key")
		requireSecrets(t, s, hook, target, key)

		s = reopen(t, db, last)
		require.Zero(t, start(t, s, last))
		requireSecrets(t, s, hook, target, key)
		_, err = reopen(t, db, old).Webhooks(t.Context()).Get(hook.ID)
		require.ErrorContains(t, err, "the database has a secret (webhooks.secret) that is encrypted with the key ")
	})
}

func TestKeyIsSavedBeforeTheDatabaseHasIt(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		keys, other := keyring(t, seal.NewKey()), keyring(t, seal.NewKey())
		_, err := reseal.Start(t.Context(), reopen(t, db, keys), keys, func() error { return errors.New("the disk is full") })
		require.ErrorContains(t, err, "the disk is full")
		saved := 0
		_, err = reseal.Start(t.Context(), reopen(t, db, other), other, func() error { saved++; return nil })
		require.NoError(t, err, "the database has no key")
		require.Equal(t, 1, saved)
	})
}

// TestLostKey deletes what was encrypted with a lost key as docs/operations.md describes.
func TestLostKey(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, statements, ok := strings.Cut(string(document), "```sql\nDELETE FROM webhooks;")
	require.True(t, ok)
	statements, _, _ = strings.Cut(statements, "```")
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		lost, keys := keyring(t, seal.NewKey()), keyring(t, seal.NewKey())
		s := reopen(t, db, lost)
		start(t, s, lost)
		write(t, s)
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
			return errors.Join(
				remotes.Put(tx, &remotes.Agent{AgentID: "nova", AuthType: "bearer", Secret: lost.Seal(remotes.SealedSecret, []byte("token"))}),
				credentials.Create(tx, "files", lost.Seal("upstream_credentials.sealed", []byte("token"))),
				credentials.Begin(tx, "state", credentials.Pending{UpstreamID: "files", Sealed: lost.Seal("upstream_authorizations.sealed", []byte("client")), Until: s.Now()}))
		}))
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
			for _, statement := range strings.Split(strings.TrimSpace("DELETE FROM webhooks;"+statements), ";") {
				if statement != "" {
					if _, err := tx.Exec(strings.TrimSpace(statement)); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		s = reopen(t, db, keys)
		require.Zero(t, start(t, s, keys))
		_, err := s.Tokens(t.Context()).AgentKey("nova", "ed25519")
		require.NoError(t, err)
		_, err = s.Tokens(t.Context()).AgentKey("nova", "hmac-sha256")
		require.True(t, errs.Is(err, errs.NotFound))
	})
}

// TestSecretsOfRemoteAgents: they are sealed with the current key when the server starts, and an agent without one is left alone.
func TestSecretsOfRemoteAgents(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		before := seal.NewKey()
		old, both := keyring(t, before), keyring(t, seal.NewKey(), before)
		s := reopen(t, db, old)
		start(t, s, old)
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.Agents().Insert(models.Agent{ID: "nova", Name: "nova", FrequencyHz: 999, IsActive: true, Version: 1, BudgetScope: "own"}),
				remotes.Put(tx, &remotes.Agent{AgentID: "nova", AuthType: "bearer", Secret: old.Seal(remotes.SealedSecret, []byte("token"))}))
		}))
		require.EqualValues(t, 2, start(t, s, both), "the secret and the mark of the key")
		require.Zero(t, start(t, s, both))
		row, err := remotes.Get(s.Reads(t.Context()), "nova")
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(row.Secret, both.Prefix()))
		plain, err := both.Open(remotes.SealedSecret, row.Secret)
		require.NoError(t, err)
		require.Equal(t, "token", string(plain))
		require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error { return remotes.Put(tx, &remotes.Agent{AgentID: "nova", AuthType: "none"}) }))
		require.Zero(t, start(t, s, both))
	})
}
