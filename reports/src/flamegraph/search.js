// After inferno's script: a search covers what is shown, also after a zoom, and finds text that is no pattern.
var inferno = { find_group: find_group, search: search, unzoom: unzoom, zoom: zoom };
function search_again() {
    var term = get_params().s;
    if (searching && term) inferno.search(term);
}
// The address may name a frame that is not in this picture.
find_group = function(node) {
    return node ? inferno.find_group(node) : undefined;
};
zoom = function(node) {
    if (!node) return;
    inferno.zoom(node);
    search_again();
};
unzoom = function() {
    inferno.unzoom();
    search_again();
};
search = function(term) {
    try {
        new RegExp(term);
    } catch (not_a_pattern) {
        term = term.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
    }
    inferno.search(term);
};
