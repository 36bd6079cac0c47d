package upstream

import "github.com/modelcontextprotocol/go-sdk/jsonrpc"

// remoteError is an error that an upstream answered with. The SDK takes some codes, whoever
// they come from, for its own words of a connection that is being closed; as a foreign
// error they are what they are, and errors.As still finds them.
type remoteError struct{ rpc *jsonrpc.Error }

// Error implements error.
func (f *remoteError) Error() string { return f.rpc.Message }

// As has errors.As find the error in it.
func (f *remoteError) As(target any) bool {
	p, ok := target.(**jsonrpc.Error)
	if ok {
		*p = f.rpc
	}
	return ok
}

// markRemoteError marks the error of an answer.
func markRemoteError(msg jsonrpc.Message) jsonrpc.Message {
	if answer, ok := msg.(*jsonrpc.Response); ok {
		if rpc, ok := answer.Error.(*jsonrpc.Error); ok { //nolint:errorlint // it has just been decoded
			answer.Error = &remoteError{rpc}
		}
	}
	return msg
}
