/** Converts a valid time to UTC with microseconds, which records have and a `Date` cannot hold. */
export function toInstant(text: string): string {
  const [, microseconds = ''] = /:\d\d\.\d{3}(\d{1,3})/.exec(text) ?? []
  return new Date(text).toISOString().replace('Z', `${microseconds.padEnd(3, '0')}Z`)
}
