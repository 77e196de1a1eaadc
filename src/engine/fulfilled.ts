/** The results of those requests that succeed. */
export async function fulfilled<Value>(requests: Iterable<Promise<Value>>): Promise<Value[]> {
  const results = await Promise.allSettled(requests)
  return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
}
