package events_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/store"
	"comet/store/storetest"
)

func TestTheRelaysCheckSaysWhetherItWorks(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		opts := &events.Options{Poll: time.Millisecond}
		relay := events.NewRelay(db.Store, events.NewFeed(db.Store, opts), opts)
		answers := func(want errs.Code) {
			t.Helper()
			require.Eventually(t, func() bool { return errs.CodeOf(relay.Check(t.Context())) == want }, time.Minute, 5*time.Millisecond, "want %q", want)
		}
		answers(errs.Unavailable)
		require.NoError(t, relay.Start(t.Context()))
		answers("")

		if !db.Alone() { // on SQLite an idle relay does not read the database
			m, err := store.OpenMigrator(db.Options)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			dropTables(t, m)
			answers(errs.Unavailable)
			_, err = m.Up(t.Context())
			require.NoError(t, err)
			answers("")
		}

		require.NoError(t, relay.Stop(context.Background()))
		answers(errs.Unavailable)
	})
}
