/** Body to pass on to a program: the runtime accepts a GET or HEAD request with a body, but cannot send one. */
export const bodyOf = ({ method, body }: Request): Request['body'] =>
  method === 'GET' || method === 'HEAD' ? null : body
