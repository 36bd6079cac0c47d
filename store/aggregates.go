package store

import "context"

// The operations are grouped by aggregate. A reader reads on the read pool or in a transaction; the
// type that embeds it adds what a transaction may do.
type (
	// AgentReader reads agents.
	AgentReader struct{ reader }
	// Agents holds the operations of a transaction on agents.
	Agents struct{ AgentReader }
	// DeliveryReader reads deliveries.
	DeliveryReader struct{ reader }
	// Deliveries holds the operations of a transaction on deliveries.
	Deliveries struct{ DeliveryReader }
	// EventReader reads events.
	EventReader struct{ reader }
	// Events holds the operations of a transaction on events.
	Events struct{ EventReader }
	// InboxReader reads agents' messages.
	InboxReader struct{ reader }
	// Inbox holds the operations of a transaction on agents' messages.
	Inbox struct{ InboxReader }
	// JobReader reads jobs.
	JobReader struct{ reader }
	// Jobs holds the operations of a transaction on jobs.
	Jobs struct{ JobReader }
	// LedgerReader reads the ledger.
	LedgerReader struct{ reader }
	// Ledger holds the operations of a transaction on the ledger.
	Ledger struct{ LedgerReader }
	// SessionReader reads sessions.
	SessionReader struct{ reader }
	// Sessions holds the operations of a transaction on sessions.
	Sessions struct{ SessionReader }
	// TaskReader reads tasks, their attempts and outputs.
	TaskReader struct{ reader }
	// Tasks holds the operations of a transaction on tasks, their attempts and outputs.
	Tasks struct{ TaskReader }
	// TokenReader reads tokens and agents' keys.
	TokenReader struct{ reader }
	// Tokens holds the operations of a transaction on tokens and agents' keys.
	Tokens struct{ TokenReader }
	// ToolReader reads tools, their upstreams and calls.
	ToolReader struct{ reader }
	// Tools holds the operations of a transaction on tools, their upstreams and calls.
	Tools struct{ ToolReader }
	// WebhookReader reads webhooks.
	WebhookReader struct{ reader }
	// Webhooks holds the operations of a transaction on webhooks.
	Webhooks struct{ WebhookReader }
	// WorkerReader reads workers.
	WorkerReader struct{ reader }
	// Workers holds the operations of a transaction on workers.
	Workers struct{ WorkerReader }
)

// Agents returns the operations on agents.
func (tx *Tx) Agents() Agents { return Agents{AgentReader{tx.reader}} }

// Agents returns the reads of agents.
func (s *Store) Agents(ctx context.Context) AgentReader { return AgentReader{s.on(ctx)} }

// Deliveries returns the operations on deliveries.
func (tx *Tx) Deliveries() Deliveries { return Deliveries{DeliveryReader{tx.reader}} }

// Deliveries returns the reads of deliveries.
func (s *Store) Deliveries(ctx context.Context) DeliveryReader { return DeliveryReader{s.on(ctx)} }

// Events returns the operations on events.
func (tx *Tx) Events() Events { return Events{EventReader{tx.reader}} }

// Events returns the reads of events.
func (s *Store) Events(ctx context.Context) EventReader { return EventReader{s.on(ctx)} }

// Inbox returns the operations on agents' messages.
func (tx *Tx) Inbox() Inbox { return Inbox{InboxReader{tx.reader}} }

// Inbox returns the reads of agents' messages.
func (s *Store) Inbox(ctx context.Context) InboxReader { return InboxReader{s.on(ctx)} }

// Jobs returns the operations on jobs.
func (tx *Tx) Jobs() Jobs { return Jobs{JobReader{tx.reader}} }

// Jobs returns the reads of jobs.
func (s *Store) Jobs(ctx context.Context) JobReader { return JobReader{s.on(ctx)} }

// Ledger returns the operations on the ledger.
func (tx *Tx) Ledger() Ledger { return Ledger{LedgerReader{tx.reader}} }

// Ledger returns the reads of the ledger.
func (s *Store) Ledger(ctx context.Context) LedgerReader { return LedgerReader{s.on(ctx)} }

// Sessions returns the operations on sessions.
func (tx *Tx) Sessions() Sessions { return Sessions{SessionReader{tx.reader}} }

// Sessions returns the reads of sessions.
func (s *Store) Sessions(ctx context.Context) SessionReader { return SessionReader{s.on(ctx)} }

// Tasks returns the operations on tasks, their attempts and outputs.
func (tx *Tx) Tasks() Tasks { return Tasks{TaskReader{tx.reader}} }

// Tasks returns the reads of tasks, their attempts and outputs.
func (s *Store) Tasks(ctx context.Context) TaskReader { return TaskReader{s.on(ctx)} }

// Tokens returns the operations on tokens and agents' keys.
func (tx *Tx) Tokens() Tokens { return Tokens{TokenReader{tx.reader}} }

// Tokens returns the reads of tokens and agents' keys.
func (s *Store) Tokens(ctx context.Context) TokenReader { return TokenReader{s.on(ctx)} }

// Tools returns the operations on tools, their upstreams and calls.
func (tx *Tx) Tools() Tools { return Tools{ToolReader{tx.reader}} }

// Tools returns the reads of tools, their upstreams and calls.
func (s *Store) Tools(ctx context.Context) ToolReader { return ToolReader{s.on(ctx)} }

// Webhooks returns the operations on webhooks.
func (tx *Tx) Webhooks() Webhooks { return Webhooks{WebhookReader{tx.reader}} }

// Webhooks returns the reads of webhooks.
func (s *Store) Webhooks(ctx context.Context) WebhookReader { return WebhookReader{s.on(ctx)} }

// Workers returns the operations on workers.
func (tx *Tx) Workers() Workers { return Workers{WorkerReader{tx.reader}} }

// Workers returns the reads of workers.
func (s *Store) Workers(ctx context.Context) WorkerReader { return WorkerReader{s.on(ctx)} }
