package upstream

import "github.com/modelcontextprotocol/go-sdk/jsonrpc"

// foreign is an error that an upstream answered with. The SDK takes some codes, whoever
// they come from, for its own words of a connection that is being closed; as a foreign
// error they are what they are, and errors.As still finds them.
type foreign struct{ rpc *jsonrpc.Error }

// Error implements error.
func (f *foreign) Error() string { return f.rpc.Message }

// As has errors.As find the error in it.
func (f *foreign) As(target any) bool {
	p, ok := target.(**jsonrpc.Error)
	if ok {
		*p = f.rpc
	}
	return ok
}

// asForeign marks the error of an answer.
func asForeign(msg jsonrpc.Message) jsonrpc.Message {
	if answer, ok := msg.(*jsonrpc.Response); ok {
		if rpc, ok := answer.Error.(*jsonrpc.Error); ok { //nolint:errorlint // it has just been decoded
			answer.Error = &foreign{rpc}
		}
	}
	return msg
}
