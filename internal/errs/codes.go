package errs

import (
	"maps"
	"slices"
)

// Code is the stable identifier of an error.
type Code string // @name ProblemCode

// The codes. A comment gives the source of the rule if a document has it.
const (
	// Internal is a fault of the server.
	Internal Code = "internal"

	// InvalidRequest is a request that breaks a rule without a name of its own.
	InvalidRequest Code = "invalid-request"
	// MalformedJSON is a body that is not one strict JSON value.
	MalformedJSON Code = "malformed-json"
	// MalformedYAML is a document that is not one YAML value of the known shape.
	MalformedYAML Code = "malformed-yaml"
	// InvalidParameter is a query parameter that is unknown, repeated or out of range.
	InvalidParameter Code = "invalid-parameter"
	// InvalidHeader is a request header that is malformed.
	InvalidHeader Code = "invalid-header"
	// InvalidFrequency is a frequency its level does not allow (CHE·NU §4.2, §8).
	InvalidFrequency Code = "invalid-frequency"
	// ParentNotFound is a parent_id that names no agent (CHE·NU §8).
	ParentNotFound Code = "parent-not-found"
	// InvalidParentLevel is a parent of another level than the one above (CHE·NU §3.2, §8).
	InvalidParentLevel Code = "invalid-parent-level"
	// ImmutableField is a change of id, level or frequency_hz to another value (CHE·NU §2.3).
	ImmutableField Code = "immutable-field"

	// Unauthenticated is a missing, unknown, expired or revoked token.
	Unauthenticated Code = "unauthenticated"
	// MissingScope is a token that lacks the scope the request needs.
	MissingScope Code = "missing-scope"
	// AgentInactive is a token bound to an agent that is deactivated.
	AgentInactive Code = "agent-inactive"

	// ForeignAgent is a token bound to one agent that acts for another.
	ForeignAgent Code = "foreign-agent"

	// InsecureRequest is a request with the login of a browser that a page of another origin may have sent, or
	// over a connection that others can read.
	InsecureRequest Code = "insecure-request"

	// NotFound is a resource or route that does not exist.
	NotFound Code = "not-found"
	// MethodNotAllowed is a route that exists for other methods.
	MethodNotAllowed Code = "method-not-allowed"
	// NotAcceptable is an Accept header that names no supported media type.
	NotAcceptable Code = "not-acceptable"

	// AgentExists is a create with an id that is taken (CHE·NU §8).
	AgentExists Code = "agent-id-exists"
	// SystemAgentExists is a create of a second L0.
	SystemAgentExists Code = "system-agent-exists"
	// ProtectedAgent is a delete or deactivation of an L0 or L1 (CHE·NU §2.4).
	ProtectedAgent Code = "protected-agent"
	// ActiveChildren is a delete or deactivation above active children (CHE·NU §2.4).
	ActiveChildren Code = "active-children"
	// ParentInactive is an active agent below an inactive parent.
	ParentInactive Code = "parent-inactive"
	// LastAdminToken is a revocation that would leave no admin token that is valid for 30 days.
	LastAdminToken Code = "last-admin-token"
	// TokenRevoked is a change to a token that is already revoked.
	TokenRevoked Code = "token-revoked"
	// AgentDeactivated is a reservation for an agent that is not active.
	AgentDeactivated Code = "agent-deactivated"
	// RequestIDReused is a fact whose request_id was used with other content.
	RequestIDReused Code = "request-id-reused"
	// ReservationEnded is a change to a reservation that ended in another way.
	ReservationEnded Code = "reservation-ended"
	// WebhookDisabled is a delivery to a webhook that is not enabled.
	WebhookDisabled Code = "webhook-disabled"
	// TaskState is a transition that the state of a task does not allow.
	TaskState Code = "task-state"
	// TaskExists is a task whose id belongs to another request.
	TaskExists Code = "task-id-exists"
	// IdempotencyKeyReused is an Idempotency-Key that was used with another request.
	IdempotencyKeyReused Code = "idempotency-key-reused"
	// Conflict is a write that does not fit the stored state.
	Conflict Code = "conflict"

	// PreconditionFailed is an If-Match or If-None-Match that does not hold.
	PreconditionFailed Code = "precondition-failed"
	// BodyTooLarge is a body over the limit of its route.
	BodyTooLarge Code = "body-too-large"
	// AddressRefused is a URL whose address comet may not connect to.
	AddressRefused Code = "address-refused"
	// UnsupportedMediaType is a body of a type that the route does not accept.
	UnsupportedMediaType Code = "unsupported-media-type"
	// RangeNotSatisfiable is a Range that begins behind the end of the content.
	RangeNotSatisfiable Code = "range-not-satisfiable"
	// BudgetExceedsMaximum is a token_budget over the level's maximum (CHE·NU §5.1, §8).
	BudgetExceedsMaximum Code = "token-budget-exceeds-maximum"
	// LimitReached is a create beyond a maximum number.
	LimitReached Code = "limit-reached"
	// BudgetReserved is BudgetExceeded while other reservations hold the tokens that are missing.
	BudgetReserved Code = "budget-reserved"
	// BudgetExceeded is a reservation that the budget does not cover.
	BudgetExceeded Code = "budget-exceeded"
	// UnsupportedWork is work that no agent offers.
	UnsupportedWork Code = "unsupported-work"
	// CodeFailed is code that failed in the sandbox, or a failed task of a tool.
	CodeFailed Code = "code-failed"
	// ToolDenied is a call of a tool that the policy of the token does not allow.
	ToolDenied Code = "tool-denied"
	// UpstreamFailed is an MCP server, or another server that comet calls for a request, that is down or does not follow its protocol.
	UpstreamFailed Code = "mcp-server-error"
	// RateLimited is a token over its rate limit.
	RateLimited Code = "rate-limited"

	// Timeout is a request that took longer, or arrived more slowly, than the server allows.
	Timeout Code = "timeout"
	// Unavailable is a database or bus that does not respond.
	Unavailable Code = "unavailable"
	// NoAgent is work whose agents are all disconnected.
	NoAgent Code = "agent-unavailable"
	// Busy is a full queue of the server.
	Busy Code = "busy"
)

// titles are the short texts of the codes. Those of CHE·NU §8 are the document's own.
var titles = map[Code]string{ //nolint:gochecknoglobals // a constant table
	Internal:             "Internal error",
	InvalidRequest:       "Invalid request",
	MalformedJSON:        "Malformed JSON",
	MalformedYAML:        "Malformed YAML",
	InvalidParameter:     "Invalid parameter",
	InvalidHeader:        "Invalid header",
	InvalidFrequency:     "Invalid frequency for level",
	ParentNotFound:       "Parent not found",
	InvalidParentLevel:   "Invalid parent level",
	ImmutableField:       "Immutable field",
	Unauthenticated:      "Authentication required",
	MissingScope:         "Missing scope",
	AgentInactive:        "Agent is inactive",
	ForeignAgent:         "Token belongs to another agent",
	InsecureRequest:      "Insecure request",
	NotFound:             "Not found",
	MethodNotAllowed:     "Method not allowed",
	NotAcceptable:        "Not acceptable",
	AgentExists:          "Agent ID already exists",
	SystemAgentExists:    "System agent already exists",
	ProtectedAgent:       "Cannot delete L0 or L1 agents",
	ActiveChildren:       "Cannot delete agents with active children",
	ParentInactive:       "Parent is inactive",
	LastAdminToken:       "Last admin token",
	TokenRevoked:         "Token is revoked",
	AgentDeactivated:     "Agent is deactivated",
	RequestIDReused:      "Request ID reused",
	ReservationEnded:     "Reservation has ended",
	WebhookDisabled:      "Webhook is disabled",
	TaskState:            "Invalid task state",
	TaskExists:           "Task ID already exists",
	IdempotencyKeyReused: "Idempotency key reused",
	Conflict:             "Conflict",
	PreconditionFailed:   "Precondition failed",
	BodyTooLarge:         "Body too large",
	UnsupportedMediaType: "Unsupported media type",
	RangeNotSatisfiable:  "Range not satisfiable",
	BudgetExceedsMaximum: "Token budget exceeds maximum",
	AddressRefused:       "Address refused",
	LimitReached:         "Limit reached",
	UnsupportedWork:      "Unsupported work",
	BudgetExceeded:       "Token budget exceeded",
	BudgetReserved:       "Token budget reserved",
	CodeFailed:           "Code failed",
	ToolDenied:           "Tool call not allowed",
	UpstreamFailed:       "MCP server error",
	RateLimited:          "Too many requests",
	Timeout:              "Request timed out",
	Unavailable:          "Service unavailable",
	NoAgent:              "Agent unavailable",
	Busy:                 "Service busy",
}

// rank orders the codes of violations: a violation that can be decided from the request alone (0)
// is reported before a conflict with stored state (1), and that before a broken limit (2).
func (c Code) rank() int {
	switch c {
	case AgentExists, SystemAgentExists, ProtectedAgent, ActiveChildren, ParentInactive, AgentDeactivated, Conflict:
		return 1
	case BudgetExceedsMaximum, AddressRefused, LimitReached, UnsupportedWork:
		return 2
	}
	return 0
}

// IsInvalid reports whether the request alone, without stored state, breaks the rule.
func (c Code) IsInvalid() bool { return c != Internal && c.rank() == 0 }

// Title returns the code's short text, the same for every occurrence.
func (c Code) Title() string {
	if title, ok := titles[c]; ok {
		return title
	}
	return titles[Internal]
}

// All returns every code, in no particular order.
func (Code) All() []Code { return slices.Collect(maps.Keys(titles)) }
