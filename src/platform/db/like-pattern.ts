/** Pattern of `like` and `ilike` that matches texts which contain this part literally. */
export const containing = (part: string): string => `%${part.replaceAll(/[\\%_]/g, '\\$&')}%`
