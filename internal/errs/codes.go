package errs

// Code names one way a request can fail. It is stable: clients match on it.
type Code string // @name ProblemCode

// The codes. The comment gives the rule's source where a document names it.
const (
	// Internal is a fault of ours.
	Internal Code = "internal"

	// InvalidRequest is a request that breaks a rule without a name of its own.
	InvalidRequest Code = "invalid-request"
	// MalformedJSON is a body that is not one strict JSON value.
	MalformedJSON Code = "malformed-json"
	// MalformedYAML is a document that is not one YAML value of the known shape.
	MalformedYAML Code = "malformed-yaml"
	// InvalidParameter is a query parameter that is unknown, repeated or out of range.
	InvalidParameter Code = "invalid-parameter"
	// InvalidHeader is a request header that cannot be understood.
	InvalidHeader Code = "invalid-header"
	// InvalidFrequency is a frequency its level does not allow (CHE·NU §4.2, §8).
	InvalidFrequency Code = "invalid-frequency"
	// ParentNotFound is a parent_id that names no agent (CHE·NU §8).
	ParentNotFound Code = "parent-not-found"
	// InvalidParentLevel is a parent of another level than the one above (CHE·NU §3.2, §8).
	InvalidParentLevel Code = "invalid-parent-level"
	// ImmutableField is a PATCH of id, level or frequency_hz to another value (CHE·NU §2.3).
	ImmutableField Code = "immutable-field"

	// Unauthenticated is a missing, unknown, expired or revoked token.
	Unauthenticated Code = "unauthenticated"
	// MissingScope is a token that lacks the scope the request needs.
	MissingScope Code = "missing-scope"
	// AgentInactive is a token bound to an agent that is deactivated.
	AgentInactive Code = "agent-inactive"

	// ForeignAgent is a token bound to one agent that acts for another.
	ForeignAgent Code = "foreign-agent"

	// NotFound is a resource or route that does not exist.
	NotFound Code = "not-found"
	// MethodNotAllowed is a route that exists for other methods.
	MethodNotAllowed Code = "method-not-allowed"
	// NotAcceptable is an Accept header that asks for a form we do not have.
	NotAcceptable Code = "not-acceptable"

	// AgentExists is a create with an id that is taken (CHE·NU §8).
	AgentExists Code = "agent-id-exists"
	// SystemAgentExists is a create of a second L0.
	SystemAgentExists Code = "system-agent-exists"
	// ProtectedAgent is a delete or deactivation of an L0 or L1 (CHE·NU §2.4).
	ProtectedAgent Code = "protected-agent"
	// ActiveChildren is a delete or deactivation above active children (CHE·NU §2.4).
	ActiveChildren Code = "active-children"
	// ParentInactive is an active agent that would stand under an inactive parent.
	ParentInactive Code = "parent-inactive"
	// LastAdminToken is a revocation that would leave no usable admin token.
	LastAdminToken Code = "last-admin-token"
	// TokenRevoked is a change to a token that is already revoked.
	TokenRevoked Code = "token-revoked"
	// AgentDeactivated is a reservation for an agent that is not active.
	AgentDeactivated Code = "agent-deactivated"
	// RequestIDReused is a fact whose request_id came with another content.
	RequestIDReused Code = "request-id-reused"
	// ReservationEnded is a change to a reservation that ended in another way.
	ReservationEnded Code = "reservation-ended"
	// WebhookDisabled is a delivery to a webhook that is not enabled.
	WebhookDisabled Code = "webhook-disabled"
	// TaskState is a step that a task cannot take from where it stands (PROTOCOL_V5 §4.1).
	TaskState Code = "task-state"
	// TaskExists is a task whose id is taken by another request's.
	TaskExists Code = "task-id-exists"
	// IdempotencyKeyReused is an Idempotency-Key that came with another request.
	IdempotencyKeyReused Code = "idempotency-key-reused"
	// Conflict is a write that met a row it did not expect.
	Conflict Code = "conflict"

	// PreconditionFailed is an If-Match or If-None-Match that does not hold.
	PreconditionFailed Code = "precondition-failed"
	// BodyTooLarge is a body over the limit of its route.
	BodyTooLarge Code = "body-too-large"
	// AddressRefused is a URL whose address comet may not connect to.
	AddressRefused Code = "address-refused"
	// UnsupportedMediaType is a body of a type the route does not take.
	UnsupportedMediaType Code = "unsupported-media-type"
	// RangeNotSatisfiable is a Range that begins behind the end of what it is of.
	RangeNotSatisfiable Code = "range-not-satisfiable"
	// BudgetExceedsMaximum is a token_budget over the level's maximum (CHE·NU §5.1, §8).
	BudgetExceedsMaximum Code = "token-budget-exceeds-maximum"
	// LimitReached is one more of something of which there is a most.
	LimitReached Code = "limit-reached"
	// BudgetExceeded is a reservation that the budget does not cover.
	BudgetExceeded Code = "budget-exceeded"
	// UnsupportedWork is work that no agent offers (Chiffon 5006, PROTOCOL_V5 E19).
	UnsupportedWork Code = "unsupported-work"
	// CodeFailed is code that failed in the sandbox, or a task that a tool asked for.
	CodeFailed Code = "code-failed"
	// ToolDenied is a call of a tool that the policy of the token does not allow.
	ToolDenied Code = "tool-denied"
	// UpstreamFailed is an MCP server that is down, or failed otherwise than by its own word.
	UpstreamFailed Code = "mcp-server-error"
	// RateLimited is a token that asks too often.
	RateLimited Code = "rate-limited"

	// Timeout is a request that took longer than the server allows.
	Timeout Code = "timeout"
	// Unavailable is a part of the ground (database, bus) that does not answer.
	Unavailable Code = "unavailable"
	// NoAgent is work whose agents are all away (Chiffon 5002, PROTOCOL_V5 E30).
	NoAgent Code = "agent-unavailable"
	// Busy is a queue of ours that is full.
	Busy Code = "busy"
)

// Class groups codes by who has to act and how. Where several rules are broken
// at once the lower class is reported: 400 before 409 before 422.
type Class uint8

// The classes, in the order in which they win.
const (
	ClassInternal Class = iota
	ClassUnauthenticated
	ClassForbidden
	ClassInvalid
	ClassNotFound
	ClassMethod
	ClassNotAcceptable
	ClassConflict
	ClassPrecondition
	ClassTooLarge
	ClassMediaType
	ClassRange
	ClassUnprocessable
	ClassTooMany
	ClassTimeout
	ClassUnavailable
	ClassBadGateway // an upstream failed; whether it executed the request is unknown
)

type entry struct {
	class Class
	title string
}

// catalogue is read-only. The titles of CHE·NU §8 are the document's own text.
var catalogue = map[Code]entry{
	Internal:             {ClassInternal, "Internal error"},
	InvalidRequest:       {ClassInvalid, "Invalid request"},
	MalformedJSON:        {ClassInvalid, "Malformed JSON"},
	MalformedYAML:        {ClassInvalid, "Malformed YAML"},
	InvalidParameter:     {ClassInvalid, "Invalid parameter"},
	InvalidHeader:        {ClassInvalid, "Invalid header"},
	InvalidFrequency:     {ClassInvalid, "Invalid frequency for level"},
	ParentNotFound:       {ClassInvalid, "Parent not found"},
	InvalidParentLevel:   {ClassInvalid, "Invalid parent level"},
	ImmutableField:       {ClassInvalid, "Immutable field"},
	Unauthenticated:      {ClassUnauthenticated, "Authentication required"},
	MissingScope:         {ClassForbidden, "Missing scope"},
	AgentInactive:        {ClassForbidden, "Agent is inactive"},
	ForeignAgent:         {ClassForbidden, "Token belongs to another agent"},
	NotFound:             {ClassNotFound, "Not found"},
	MethodNotAllowed:     {ClassMethod, "Method not allowed"},
	NotAcceptable:        {ClassNotAcceptable, "Not acceptable"},
	AgentExists:          {ClassConflict, "Agent ID already exists"},
	SystemAgentExists:    {ClassConflict, "System agent already exists"},
	ProtectedAgent:       {ClassConflict, "Cannot delete L0 or L1 agents"},
	ActiveChildren:       {ClassConflict, "Cannot delete agents with active children"},
	ParentInactive:       {ClassConflict, "Parent is inactive"},
	LastAdminToken:       {ClassConflict, "Last admin token"},
	TokenRevoked:         {ClassConflict, "Token is revoked"},
	AgentDeactivated:     {ClassConflict, "Agent is deactivated"},
	RequestIDReused:      {ClassConflict, "Request ID reused"},
	ReservationEnded:     {ClassConflict, "Reservation has ended"},
	WebhookDisabled:      {ClassConflict, "Webhook is disabled"},
	TaskState:            {ClassConflict, "Task cannot take this step"},
	TaskExists:           {ClassConflict, "Task ID already exists"},
	IdempotencyKeyReused: {ClassConflict, "Idempotency key reused"},
	Conflict:             {ClassConflict, "Conflict"},
	PreconditionFailed:   {ClassPrecondition, "Precondition failed"},
	BodyTooLarge:         {ClassTooLarge, "Body too large"},
	UnsupportedMediaType: {ClassMediaType, "Unsupported media type"},
	RangeNotSatisfiable:  {ClassRange, "Range not satisfiable"},
	BudgetExceedsMaximum: {ClassUnprocessable, "Token budget exceeds maximum"},
	AddressRefused:       {ClassUnprocessable, "Address refused"},
	LimitReached:         {ClassUnprocessable, "Limit reached"},
	UnsupportedWork:      {ClassUnprocessable, "Unsupported work"},
	BudgetExceeded:       {ClassTooMany, "Token budget exceeded"},
	CodeFailed:           {ClassUnprocessable, "Code failed"},
	ToolDenied:           {ClassForbidden, "Tool call not allowed"},
	UpstreamFailed:       {ClassBadGateway, "MCP server error"},
	RateLimited:          {ClassTooMany, "Too many requests"},
	Timeout:              {ClassTimeout, "Request timed out"},
	Unavailable:          {ClassUnavailable, "Service unavailable"},
	NoAgent:              {ClassUnavailable, "Agent unavailable"},
	Busy:                 {ClassUnavailable, "Service busy"},
}

// Class returns the code's class; an unknown code is ClassInternal.
func (c Code) Class() Class { return catalogue[c].class }

// Title returns the code's short text, the same for every occurrence.
func (c Code) Title() string {
	if e, ok := catalogue[c]; ok {
		return e.title
	}
	return catalogue[Internal].title
}

// Codes returns every code, in no particular order.
func Codes() []Code {
	all := make([]Code, 0, len(catalogue))
	for c := range catalogue {
		all = append(all, c)
	}
	return all
}
