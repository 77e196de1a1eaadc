const NAMES = [
  'NotFound',
  'PermissionDenied',
  'ConnectionRefused',
  'ConnectionReset',
  'ConnectionAborted',
  'NotConnected',
  'AddrInUse',
  'AddrNotAvailable',
  'BrokenPipe',
  'AlreadyExists',
  'InvalidData',
  'TimedOut',
  'Interrupted',
  'WriteZero',
  'UnexpectedEof',
  'BadResource',
  'Http',
  'Busy',
  'NotSupported',
  'NotCapable',
] as const

type ErrorClass = new (message?: string, options?: ErrorOptions) => Error

const errorClass = (name: string): ErrorClass => {
  const named = {
    [name]: class extends Error {
      override name = name
    },
  }
  return named[name] as ErrorClass
}

export const errors = Object.fromEntries(NAMES.map((name) => [name, errorClass(name)])) as Record<
  (typeof NAMES)[number],
  ErrorClass
>

/** Function that takes the place of an unsupported one. */
export const unavailable = (name: string) => () => {
  throw new errors.NotSupported(`${name} is not available here`)
}
