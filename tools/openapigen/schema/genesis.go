package schema

// GenesisMessage is one message of the Genesis protocol: common members around those of one of four types. `type` says which. Unknown
// members are accepted.
type GenesisMessage struct {
	Request  *GenesisRequest  `json:"request" extensions:"x-one-of"`
	Response *GenesisResponse `json:"response" extensions:"x-one-of"`
	Event    *GenesisEvent    `json:"event" extensions:"x-one-of"`
	Error    *GenesisError    `json:"error" extensions:"x-one-of"`
}

// GenesisHead has the members of every message.
type GenesisHead struct {
	ID      string `json:"id" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440001"` // Each message has its own id; the same message sent again has no further effect.
	Version string `json:"version" validate:"required" enums:"1.0" example:"1.0"`                               // The version of the protocol.
	// The agent that sends the message, or any name that is not the id of an agent for a token that is not bound to one.
	From string `json:"from" validate:"required,min=1,max=128" example:"dashboard"`
	// The time in nanoseconds since 1970, at most 5 minutes from comet's.
	Timestamp int64 `json:"timestamp" validate:"required" minimum:"1" example:"1767225600123456000"`
	// The Ed25519 signature of the profile v1 in base64. It may be missing if a token names the sender and none of its keys is required.
	Signature string `json:"signature,omitempty" example:"a2V5cyBhbmQgdGV4dHMgb2YgdGhpcyBleGFtcGxlIGRvIG5vdCBiZWxvbmcgdG9nZXRoZXIsIGhlcmUhIQ=="`
	// The signature of the whole message (RFC 8785), the profile jcs.
	SignatureJCS string `json:"signatureJcs,omitempty" example:"a2V5cyBhbmQgdGV4dHMgb2YgdGhpcyBleGFtcGxlIGRvIG5vdCBiZWxvbmcgdG9nZXRoZXIsIGhlcmUhIQ=="`
	// The key of the signatures, 32 bytes in base64 or another form of docs/genesis.md.
	PublicKey string `json:"publicKey,omitempty" example:"Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="`
}

// GenesisRequest asks for work (Genesis §1).
type GenesisRequest struct {
	GenesisHead
	Type          string          `json:"type" validate:"required" enums:"REQUEST" example:"REQUEST"`                     // Always `REQUEST`.
	To            string          `json:"to" validate:"required,min=1,max=128" example:"broadcast"`                       // An agent, `nova` for comet itself, or `broadcast` for any agent that offers the intent.
	CorrelationID string          `json:"correlationId,omitempty" validate:"omitempty,max=128" example:"order-7"`         // The id that the RESPONSE repeats, that of the message by default.
	Intent        string          `json:"intent" validate:"required,min=1,max=64" example:"analyze_data"`                 // A capability, or an intent that comet fulfils.
	Confidence    float64         `json:"confidence" validate:"required" minimum:"0" maximum:"1" example:"0.98"`          // How certain the sender is of the intent.
	Entities      []GenesisEntity `json:"entities" validate:"required" maxItems:"100"`                                    // What was found in a text.
	Payload       any             `json:"payload" validate:"required"`                                                    // Any JSON value, also null.
	Context       map[string]any  `json:"context" validate:"required"`                                                    // Passed to the agent; `maxTokens` is the budget of the task.
	Priority      string          `json:"priority" validate:"required" enums:"LOW,NORMAL,HIGH,CRITICAL" example:"NORMAL"` // A waiting task of a higher priority goes first. The numbers 0 to 3 are accepted too.
	Timeout       int64           `json:"timeout,omitempty" minimum:"1" example:"30000"`                                  // The total time in milliseconds.
	TTL           int64           `json:"ttl,omitempty" minimum:"1" example:"60000"`                                      // The time since `timestamp` in milliseconds.
	Options       GenesisOptions  `json:"options" validate:"required"`
}

// GenesisOptions are the options of a REQUEST.
type GenesisOptions struct {
	RequiresAck          bool  `json:"requiresAck,omitempty" example:"false"`                 // Whether an acknowledgement is sent back over a connection.
	RequiresResponse     *bool `json:"requiresResponse,omitempty" example:"true"`             // False if the end is not sent to the inbox of the agent.
	AllowPartialResponse bool  `json:"allowPartialResponse,omitempty" example:"true"`         // Whether partial responses are sent to the inbox of the agent.
	MaxResponseTime      int64 `json:"maxResponseTime,omitempty" minimum:"1" example:"30000"` // The total time in milliseconds.
	Stream               bool  `json:"stream,omitempty" example:"false"`                      // As `allowPartialResponse`, with events about progress.
}

// GenesisEntity is a value that was found in a text.
type GenesisEntity struct {
	Type        string         `json:"type" validate:"required,min=1,max=128" example:"agent_name"`           // The type of the entity.
	Value       string         `json:"value" validate:"required" example:"data-analyst"`                      // The text that was found.
	Confidence  float64        `json:"confidence" validate:"required" minimum:"0" maximum:"1" example:"0.99"` // How certain the sender is.
	StartOffset *int64         `json:"startOffset,omitempty" minimum:"0" example:"4"`                         // In UTF-16 code units.
	EndOffset   *int64         `json:"endOffset,omitempty" minimum:"0" example:"16"`                          // In UTF-16 code units.
	Metadata    map[string]any `json:"metadata,omitempty"`                                                    // More about the entity.
}

// GenesisResponse is the response to a REQUEST (Genesis §2).
type GenesisResponse struct {
	GenesisHead
	Type           string               `json:"type" validate:"required" enums:"RESPONSE" example:"RESPONSE"`                               // Always `RESPONSE`.
	To             string               `json:"to" validate:"required,min=1,max=128" example:"nova"`                                        // `nova`, which forwards it.
	CorrelationID  string               `json:"correlationId" validate:"required,min=1,max=128" example:"order-7"`                          // That of the REQUEST that the sender got.
	RequestID      string               `json:"requestId" validate:"required" format:"uuid" example:"550e8400-e29b-41d4-a716-446655440002"` // The id of that REQUEST.
	Status         string               `json:"status" validate:"required" enums:"SUCCESS,FAILURE,PARTIAL" example:"SUCCESS"`               // Whether the work has ended.
	Data           any                  `json:"data,omitempty"`                                                                             // Any JSON value.
	Error          *GenesisErrorDetails `json:"error,omitempty"`                                                                            // Required with FAILURE.
	Confidence     *float64             `json:"confidence,omitempty" minimum:"0" maximum:"1" example:"0.9"`                                 // How certain the agent is of its data.
	Sources        []string             `json:"sources,omitempty" maxItems:"1000"`                                                          // Where the data come from.
	ProcessingTime *float64             `json:"processingTime,omitempty" minimum:"0" example:"12.5"`                                        // In milliseconds.
	Sequence       int64                `json:"sequence,omitempty" minimum:"1" example:"1"`                                                 // The number of a partial response.
	Usage          *GenesisUsage        `json:"usage,omitempty"`                                                                            // What the work has used.
}

// GenesisErrorDetails is the failure of an agent.
type GenesisErrorDetails struct {
	Code      string         `json:"code" validate:"required,min=1,max=128" example:"NO_DATA"` // The code of the error.
	Message   string         `json:"message" validate:"required" example:"the table is empty"` // A message for people.
	Details   map[string]any `json:"details,omitempty"`                                        // More about the error.
	Stack     string         `json:"stack,omitempty" example:"at line 7"`                      // Accepted, neither stored nor forwarded.
	Retryable bool           `json:"retryable" validate:"required" example:"false"`            // Whether another agent may succeed.
}

// GenesisUsage is what the work for a REQUEST has used.
type GenesisUsage struct {
	Tokens int64  `json:"tokens" minimum:"0" maximum:"1000000000000" example:"120"`           // Tokens, which are charged to the agent.
	Model  string `json:"model,omitempty" validate:"omitempty,max=128" example:"gpt-oss-20b"` // The language model.
}

// GenesisEvent tells subscribers what happened (Genesis §3).
type GenesisEvent struct {
	GenesisHead
	Type              string          `json:"type" validate:"required" enums:"EVENT" example:"EVENT"`                   // Always `EVENT`.
	To                string          `json:"to,omitempty" validate:"omitempty,max=128" example:"broadcast"`            // An agent, or all subscribers.
	EventType         string          `json:"eventType" validate:"required,min=3,max=128" example:"workflow.completed"` // Words separated by full stops.
	EventName         string          `json:"eventName" validate:"required,min=1,max=128" example:"Workflow completed"` // A name for people.
	Payload           any             `json:"payload" validate:"required"`                                              // Any JSON value, also null.
	Metadata          GenesisMetadata `json:"metadata" validate:"required"`
	DeliveryGuarantee string          `json:"deliveryGuarantee" validate:"required" enums:"at-most-once,at-least-once,exactly-once" example:"at-least-once"` // How often it reaches a subscriber.
	DeduplicationID   string          `json:"deduplicationId,omitempty" validate:"omitempty,max=128" example:"etl-pipeline-123"`                             // Required with `exactly-once`.
}

// GenesisMetadata describes the payload of an EVENT.
type GenesisMetadata struct {
	SchemaVersion string `json:"schemaVersion" validate:"required,min=1,max=128" example:"1"`              // The version of the payload's schema.
	ContentType   string `json:"contentType" validate:"required,min=1,max=128" example:"application/json"` // The media type of the payload.
	OriginalFrom  string `json:"originalFrom,omitempty" example:"shop"`                                    // The sender of an event that comet passes on.
	OriginalID    string `json:"originalId,omitempty" example:"550e8400-e29b-41d4-a716-446655440004"`      // The id that the sender gave it.
}

// GenesisError reports a failure that is not an agent's own response (Genesis §4).
type GenesisError struct {
	GenesisHead
	Type               string         `json:"type" validate:"required" enums:"ERROR" example:"ERROR"`                                                                         // Always `ERROR`.
	To                 string         `json:"to" validate:"required,min=1,max=128" example:"nova"`                                                                            // `nova`, which forwards it.
	CorrelationID      string         `json:"correlationId,omitempty" validate:"omitempty,max=128" example:"order-7"`                                                         // That of the REQUEST that failed.
	OriginalMessageID  string         `json:"originalMessageId,omitempty" validate:"omitempty,max=128" example:"550e8400-e29b-41d4-a716-446655440002"`                        // The id of the message that failed.
	ErrorType          string         `json:"errorType" validate:"required" enums:"ROUTING_ERROR,TIMEOUT,VALIDATION_ERROR,AGENT_ERROR" example:"VALIDATION_ERROR"`            // The class of the error.
	ErrorCode          string         `json:"errorCode" validate:"required,min=1,max=128" example:"INVALID_MESSAGE"`                                                          // The code of the error; docs/genesis.md lists them.
	Message            string         `json:"message" validate:"required" example:"/priority must be LOW, NORMAL, HIGH or CRITICAL, or its number from 0 to 3, not \"SOON\""` // A message for people.
	Details            map[string]any `json:"details,omitempty"`                                                                                                              // `problems` of an invalid message, `supported` intents.
	RetryAfter         *int64         `json:"retryAfter,omitempty" minimum:"0" example:"1000"`                                                                                // In milliseconds.
	FallbackSuggestion string         `json:"fallbackSuggestion,omitempty" example:"data-analyst-2"`                                                                          // Another agent that offers the intent.
}
