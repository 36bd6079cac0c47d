package store

// The ledger decides on chains of ancestors and the budgets and scopes on them.
// On PostgreSQL a pair of advisory locks keeps them still meanwhile: a row lock on
// every ancestor would have each charge write to the root's row. On SQLite there is
// one writer and nothing to lock.

// LockChains keeps the ledger from deciding until this transaction ends, for changes
// to an agent's parent, budget, scope or activity. It must come before any lock on an
// agent.
func (tx *Tx) LockChains() error { return tx.lockChains(tx.store.dialect.lockChains) }

// ShareChains keeps parents, budgets, scopes and activity as they are until this
// transaction ends. It must come before any other lock.
func (tx *Tx) ShareChains() error { return tx.lockChains(tx.store.dialect.shareChains) }

func (tx *Tx) lockChains(statement string) error {
	if statement == "" {
		return nil
	}
	_, err := tx.exec(statement)
	return err
}
