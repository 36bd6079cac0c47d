package store

import "context"

// The operations are grouped by aggregate. A reader reads on the read pool or in a transaction; the
// type that embeds it adds what a transaction may do.
type (
	agentReader struct{ reader }
	// Agents holds the operations of a transaction on agents.
	Agents         struct{ agentReader }
	deliveryReader struct{ reader }
	// Deliveries holds the operations of a transaction on deliveries.
	Deliveries struct{ deliveryReader }
	// EventReader reads events.
	EventReader struct{ reader }
	// Events holds the operations of a transaction on events.
	Events      struct{ EventReader }
	inboxReader struct{ reader }
	// Inbox holds the operations of a transaction on agents' messages.
	Inbox     struct{ inboxReader }
	jobReader struct{ reader }
	// Jobs holds the operations of a transaction on jobs.
	Jobs         struct{ jobReader }
	ledgerReader struct{ reader }
	// Ledger holds the operations of a transaction on the ledger.
	Ledger        struct{ ledgerReader }
	sessionReader struct{ reader }
	// Sessions holds the operations of a transaction on sessions.
	Sessions   struct{ sessionReader }
	taskReader struct{ reader }
	// Tasks holds the operations of a transaction on tasks, their attempts and outputs.
	Tasks       struct{ taskReader }
	tokenReader struct{ reader }
	// Tokens holds the operations of a transaction on tokens and agents' keys.
	Tokens     struct{ tokenReader }
	toolReader struct{ reader }
	// Tools holds the operations of a transaction on tools, their upstreams and calls.
	Tools         struct{ toolReader }
	webhookReader struct{ reader }
	// Webhooks holds the operations of a transaction on webhooks.
	Webhooks     struct{ webhookReader }
	workerReader struct{ reader }
	// Workers holds the operations of a transaction on workers.
	Workers struct{ workerReader }
)

// Agents returns the operations on agents.
func (tx *Tx) Agents() Agents { return Agents{agentReader{tx.reader}} }

// Agents returns the reads of agents.
func (s *Store) Agents(ctx context.Context) agentReader { return agentReader{s.on(ctx)} }

// Deliveries returns the operations on deliveries.
func (tx *Tx) Deliveries() Deliveries { return Deliveries{deliveryReader{tx.reader}} }

// Deliveries returns the reads of deliveries.
func (s *Store) Deliveries(ctx context.Context) deliveryReader { return deliveryReader{s.on(ctx)} }

// Events returns the operations on events.
func (tx *Tx) Events() Events { return Events{EventReader{tx.reader}} }

// Events returns the reads of events.
func (s *Store) Events(ctx context.Context) EventReader { return EventReader{s.on(ctx)} }

// Inbox returns the operations on agents' messages.
func (tx *Tx) Inbox() Inbox { return Inbox{inboxReader{tx.reader}} }

// Inbox returns the reads of agents' messages.
func (s *Store) Inbox(ctx context.Context) inboxReader { return inboxReader{s.on(ctx)} }

// Jobs returns the operations on jobs.
func (tx *Tx) Jobs() Jobs { return Jobs{jobReader{tx.reader}} }

// Jobs returns the reads of jobs.
func (s *Store) Jobs(ctx context.Context) jobReader { return jobReader{s.on(ctx)} }

// Ledger returns the operations on the ledger.
func (tx *Tx) Ledger() Ledger { return Ledger{ledgerReader{tx.reader}} }

// Ledger returns the reads of the ledger.
func (s *Store) Ledger(ctx context.Context) ledgerReader { return ledgerReader{s.on(ctx)} }

// Sessions returns the operations on sessions.
func (tx *Tx) Sessions() Sessions { return Sessions{sessionReader{tx.reader}} }

// Sessions returns the reads of sessions.
func (s *Store) Sessions(ctx context.Context) sessionReader { return sessionReader{s.on(ctx)} }

// Tasks returns the operations on tasks, their attempts and outputs.
func (tx *Tx) Tasks() Tasks { return Tasks{taskReader{tx.reader}} }

// Tasks returns the reads of tasks, their attempts and outputs.
func (s *Store) Tasks(ctx context.Context) taskReader { return taskReader{s.on(ctx)} }

// Tokens returns the operations on tokens and agents' keys.
func (tx *Tx) Tokens() Tokens { return Tokens{tokenReader{tx.reader}} }

// Tokens returns the reads of tokens and agents' keys.
func (s *Store) Tokens(ctx context.Context) tokenReader { return tokenReader{s.on(ctx)} }

// Tools returns the operations on tools, their upstreams and calls.
func (tx *Tx) Tools() Tools { return Tools{toolReader{tx.reader}} }

// Tools returns the reads of tools, their upstreams and calls.
func (s *Store) Tools(ctx context.Context) toolReader { return toolReader{s.on(ctx)} }

// Webhooks returns the operations on webhooks.
func (tx *Tx) Webhooks() Webhooks { return Webhooks{webhookReader{tx.reader}} }

// Webhooks returns the reads of webhooks.
func (s *Store) Webhooks(ctx context.Context) webhookReader { return webhookReader{s.on(ctx)} }

// Workers returns the operations on workers.
func (tx *Tx) Workers() Workers { return Workers{workerReader{tx.reader}} }

// Workers returns the reads of workers.
func (s *Store) Workers(ctx context.Context) workerReader { return workerReader{s.on(ctx)} }
