/** What goes on to a program: the runtime takes a GET or a HEAD with a body, and sends none. */
export const bodyOf = ({ method, body }: Request): Request['body'] =>
  method === 'GET' || method === 'HEAD' ? null : body
